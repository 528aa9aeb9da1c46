// Messages from a peer for the compute stream, received into slots as soon as they are known to
// come. Events go both ways, as in SendRing.
//
// Two ways to reuse slots: in order, each message taken once (hidden states); or the newest
// overwrite the oldest, taken or not, where any later message says all that an earlier one did
// (tokens by slot).
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

class ReceiveRing {
 public:
  struct Options {
    NcclLink* link = nullptr;
    int32_t device = 0;
    cudaStream_t compute = nullptr;
    kernels::Buffer memory;  // [n_slots, slot_bytes]
    size_t slot_bytes = 0;   // the longest message's payload and its seal
    size_t n_slots = 2;
    uint64_t epoch = 0;
    kernels::cuda::BrokenStep broken;  // outlives the ring
    bool overwrites = false;
    bool poison = false;  // slots are filled with NaN when they are free: for tests
    std::function<void(absl::Status)> on_failure;  // of the ring's thread
  };
  static absl::StatusOr<std::unique_ptr<ReceiveRing>> Start(Options options);
  ~ReceiveRing();

  // In step order, from one thread: `step` will bring a message of this size.
  absl::Status Expect(uint64_t step, size_t bytes);
  // Compute thread: the message of `step`, the next in order, is copied to `to` after what is
  // queued and before what will be, and its seal is checked. Waits on the host only until its
  // receive is queued. The value: whether it had arrived.
  absl::StatusOr<bool> Take(uint64_t step, void* to, size_t bytes);
  // Where messages overwrite: that of `step`, or of the next step that is still there.
  absl::Status TakeLatest(uint64_t step, void* to, size_t bytes);
  void Close(const absl::Status& reason);
  // DEADLINE_EXCEEDED: an expected message has not come for `timeout`, though those before it have.
  absl::Status CheckProgress(std::chrono::milliseconds timeout);
  ChannelCounters counters() const;

 private:
  struct Slot {
    CudaEvent full, free;
    uint64_t step = 0;       // whose message is here or on its way; 0: none, or being replaced
    bool was_taken = false;  // since it was received
  };
  struct Expected {
    uint64_t step = 0;
    size_t bytes = 0;
  };
  explicit ReceiveRing(Options options) : options_(std::move(options)) {}
  void Run();
  absl::Status ReceiveNext(const Expected& expected, uint64_t index);
  // Compute thread, not locked: a launch waits while the stream's queue is full, and the watchdog
  // must get in. Nothing is received into the slot meanwhile.
  absl::Status Copy(uint64_t index, void* to, size_t bytes);
  char* Memory(uint64_t index) const {
    return options_.memory.As<char>() + index % options_.n_slots * options_.slot_bytes;
  }

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  // Never resized. One thread at a time has a slot to itself: see ReceiveNext and Copy.
  std::vector<Slot> slots_;
  std::deque<Expected> expected_ ABSL_GUARDED_BY(mutex_);  // not queued on the link yet
  uint64_t n_queued_ ABSL_GUARDED_BY(mutex_) = 0;          // receives
  // Step whose receive is next: it may take until it is sent; or 0.
  uint64_t queueing_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_taken_ ABSL_GUARDED_BY(mutex_) = 0;  // in order
  // Where they overwrite: the one that is being copied.
  const Slot* copied_ ABSL_GUARDED_BY(mutex_) = nullptr;
  ChannelCounters counters_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace stagecoach::worker
