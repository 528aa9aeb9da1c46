// Messages from the compute stream to a peer. Each message is copied into one of a few slots, so
// that the next step may overwrite its source. A slot is reused when its message has been sent.
// Events order both streams: compute -> link "the slot is full", link -> compute "the slot is
// free".
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kernels/cuda/device/message_copy.h"
#include "kernels/op_args.h"
#include "worker/transport/nccl/nccl_link.h"
#include "worker/transport/nccl/progress.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

class SendRing {
 public:
  struct Options {
    NcclLink* link = nullptr;
    int32_t device = 0;
    cudaStream_t compute = nullptr;
    kernels::Buffer memory;  // [n_slots, slot_bytes]
    size_t slot_bytes = 0;   // the longest payload plus its seal
    size_t n_slots = 2;
    uint64_t epoch = 0;
    kernels::cuda::BrokenStep broken;              // outlives the ring
    std::function<void(absl::Status)> on_failure;  // called on the ring's thread
  };
  static absl::StatusOr<std::unique_ptr<SendRing>> Start(Options options);
  ~SendRing();

  // Compute thread: seals and queues the message of `step`. On the host it waits only for the
  // ring's own thread.
  absl::Status Put(uint64_t step, const void* from, size_t bytes);
  // Waiting callers get the reason, and the thread ends.
  void Close(const absl::Status& reason);
  // DEADLINE_EXCEEDED if a message has not been sent within `timeout` after those before it.
  absl::Status CheckProgress(std::chrono::milliseconds timeout);
  ChannelCounters counters() const;

 private:
  struct Slot {
    CudaEvent full, free;
  };
  explicit SendRing(Options options) : options_(std::move(options)) {}
  void Run();
  absl::Status SendNext(uint64_t index, size_t bytes);
  char* Memory(uint64_t index) const {
    return options_.memory.As<char>() + index % options_.n_slots * options_.slot_bytes;
  }

  const Options options_;
  std::vector<Slot> slots_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<size_t> waiting_ ABSL_GUARDED_BY(mutex_);  // payload sizes of messages to send
  uint64_t n_put_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_queued_ ABSL_GUARDED_BY(mutex_) = 0;  // on the link
  ChannelCounters counters_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace stagecoach::worker
