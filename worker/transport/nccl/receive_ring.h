// Messages from a peer for the compute stream. They are received into slots as soon as they are
// announced. Events order both streams, as in SendRing.
//
// Slots can be reused in two ways: in order, with each message taken once (hidden states); or the
// newest message overwrites the oldest, whether taken or not, if a later message contains all
// information of an earlier one (tokens by slot).
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
    size_t slot_bytes = 0;   // the longest payload plus its seal
    size_t n_slots = 2;
    uint64_t epoch = 0;
    kernels::cuda::BrokenStep broken;  // outlives the ring
    bool overwrites = false;
    bool poison = false;                           // for tests: fill free slots with NaN
    std::function<void(absl::Status)> on_failure;  // called on the ring's thread
  };
  static absl::StatusOr<std::unique_ptr<ReceiveRing>> Start(Options options);
  ~ReceiveRing();

  // Announces, in step order and from one thread, that `step` will bring a message of this size.
  absl::Status Expect(uint64_t step, size_t bytes);
  // Compute thread: copies the message of `step`, the next in order, to `to`, and checks its seal.
  // The copy is ordered after the work queued so far and before work queued later. Waits on the
  // host only until the message's receive is queued. Returns whether the message had arrived.
  absl::StatusOr<bool> Take(uint64_t step, void* to, size_t bytes);
  // If messages overwrite: takes the message of `step`, or of the next later step still in the
  // ring.
  absl::Status TakeLatest(uint64_t step, void* to, size_t bytes);
  void Close(const absl::Status& reason);
  // DEADLINE_EXCEEDED if an expected message has not come within `timeout` after those before it.
  absl::Status CheckProgress(std::chrono::milliseconds timeout);
  ChannelCounters counters() const;

 private:
  struct Slot {
    CudaEvent full, free;
    uint64_t step = 0;       // step of the message here or on its way; 0: none, or being replaced
    bool was_taken = false;  // since it was received
  };
  struct Expected {
    uint64_t step = 0;
    size_t bytes = 0;
  };
  explicit ReceiveRing(Options options) : options_(std::move(options)) {}
  void Run();
  absl::Status ReceiveNext(const Expected& expected, uint64_t index);
  // Compute thread, without the lock: a launch blocks while the stream's queue is full, and the
  // watchdog must still get the lock. Nothing is received into the slot meanwhile.
  absl::Status Copy(uint64_t index, void* to, size_t bytes);
  char* Memory(uint64_t index) const {
    return options_.memory.As<char>() + index % options_.n_slots * options_.slot_bytes;
  }

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  // Never resized. Only one thread at a time uses a slot: see ReceiveNext and Copy.
  std::vector<Slot> slots_;
  std::deque<Expected> expected_ ABSL_GUARDED_BY(mutex_);  // not queued on the link yet
  uint64_t n_queued_ ABSL_GUARDED_BY(mutex_) = 0;          // receives
  // Step of the receive being queued, which may block; 0: none.
  uint64_t queueing_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t n_taken_ ABSL_GUARDED_BY(mutex_) = 0;  // messages taken in order
  // If messages overwrite: the slot being copied.
  const Slot* copied_ ABSL_GUARDED_BY(mutex_) = nullptr;
  ChannelCounters counters_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace stagecoach::worker
