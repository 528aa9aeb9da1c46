// Step metadata over a link, in fixed slots (meta_slot.h). The slots are in device memory at both
// ends, with copies in host memory, where they are written and read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/closable_queue.h"
#include "common/mutex.h"
#include "kernels/op_args.h"
#include "worker/transport/meta_slot.h"
#include "worker/transport/nccl/nccl_link.h"
#include "worker/transport/nccl/progress.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

inline constexpr size_t kMetaSlots = 4;

class MetaSender {
 public:
  // device_memory, host_memory: [kMetaSlots, kMetaSlotBytes]. The link must outlive the sender.
  static absl::StatusOr<std::unique_ptr<MetaSender>> Make(NcclLink* link, int32_t device,
                                                          uint64_t epoch,
                                                          kernels::Buffer device_memory,
                                                          kernels::Buffer host_memory);

  ~MetaSender();
  MetaSender(const MetaSender&) = delete;
  MetaSender& operator=(const MetaSender&) = delete;

  // Use from one thread. Waits only while all kMetaSlots slots are still being sent. It ends when
  // one has been sent or the link is aborted.
  absl::Status Send(uint64_t step, const std::string& message);
  absl::Status CheckProgress(std::chrono::milliseconds timeout);
  ChannelCounters counters() const;

 private:
  MetaSender(NcclLink* link, int32_t device, uint64_t epoch, kernels::Buffer device_memory,
             kernels::Buffer host_memory)
      : link_(link),
        device_(device),
        epoch_(epoch),
        device_memory_(std::move(device_memory)),
        host_memory_(std::move(host_memory)) {}

  NcclLink* const link_;
  const int32_t device_;
  const uint64_t epoch_;
  const kernels::Buffer device_memory_, host_memory_;
  // Slots are copied to the device on this stream: on the link's stream, a copy behind an unsent
  // message would block the copies of other streams.
  cudaStream_t copies_ = nullptr;
  CudaEvent copied_;
  std::vector<CudaEvent> left_;  // [kMetaSlots]
  mutable Mutex mutex_;
  uint64_t n_sent_ ABSL_GUARDED_BY(mutex_) = 0;  // slots
  // One more is being sent, which may block until the peer receives.
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  ChannelCounters counters_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
};

// A thread receives one slot after the other, and queues a receive only when the previous slot has
// arrived: with blocking launches, a receive queued early would hold back the slot before it. The
// thread starts with the first Receive. From then on work is always waiting on the device, so no
// allocation may wait for the device to become idle.
class MetaReceiver {
 public:
  struct Options {
    NcclLink* link = nullptr;
    int32_t device = 0;
    uint64_t epoch = 0;
    kernels::Buffer device_memory, host_memory;  // [kMetaSlots, kMetaSlotBytes]
    std::function<void(absl::Status)> on_failure;
  };
  static absl::StatusOr<std::unique_ptr<MetaReceiver>> Make(Options options);
  ~MetaReceiver();

  absl::StatusOr<Message> Receive();  // use from one thread
  void Close(const absl::Status& reason) { messages_.Close(reason); }
  ChannelCounters counters() const;

 private:
  static constexpr size_t kMessagesAhead = 8;
  explicit MetaReceiver(Options options)
      : options_(std::move(options)), reader_(options_.epoch), messages_(kMessagesAhead) {}
  void Run();
  absl::Status ReceiveSlot(uint64_t index);

  const Options options_;
  CudaEvent here_;
  MetaSlotReader reader_;  // used by thread_ only
  ClosableQueue<Message> messages_;
  mutable Mutex mutex_;
  ChannelCounters counters_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace stagecoach::worker
