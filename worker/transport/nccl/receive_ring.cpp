#include "worker/transport/nccl/receive_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

using kernels::cuda::ToStatus;

// Receives queued on a link at the same time. An abort takes 2 ms for each.
constexpr uint64_t kMostQueued = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<ReceiveRing>> ReceiveRing::Start(Options options) {
  std::unique_ptr<ReceiveRing> ring(new ReceiveRing(std::move(options)));
  ring->slots_.resize(ring->options_.n_slots);
  for (Slot& slot : ring->slots_) {
    SC_ASSIGN_OR_RETURN(slot.full, CudaEvent::Make(CudaEvent::Use::kOrder));
    SC_ASSIGN_OR_RETURN(slot.free, CudaEvent::Make(CudaEvent::Use::kOrder));
  }
  ring->thread_ = std::thread([ring = ring.get()] { ring->Run(); });
  return ring;
}

ReceiveRing::~ReceiveRing() {
  Close(absl::CancelledError("the link has ended"));
  if (thread_.joinable()) thread_.join();
}

absl::Status ReceiveRing::Expect(uint64_t step, size_t bytes) {
  SC_CHECK(step > 0 && bytes + kernels::cuda::kMessageSealBytes <= options_.slot_bytes);
  const MutexLock lock(mutex_);
  if (!closed_.ok()) return closed_;
  expected_.push_back({step, bytes});
  changed_.notify_all();
  return absl::OkStatus();
}

void ReceiveRing::Run() {
  cudaSetDevice(options_.device);
  for (;;) {
    Expected expected;
    uint64_t index = 0;
    {
      MutexLock lock(mutex_);
      changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const bool is_free = options_.overwrites ? &slots_[n_queued_ % options_.n_slots] != copied_
                                                 : n_taken_ + options_.n_slots > n_queued_;
        return !closed_.ok() || (!expected_.empty() && is_free);
      });
      if (!closed_.ok()) return;
      expected = expected_.front();
      expected_.pop_front();
      index = n_queued_;
      slots_[index % options_.n_slots].step = 0;
      queueing_ = expected.step;
    }
    if (const absl::Status received = ReceiveNext(expected, index); !received.ok()) {
      options_.on_failure(received);
      return;
    }
  }
}

absl::Status ReceiveRing::ReceiveNext(const Expected& expected, uint64_t index) {
  // Nothing else uses the slot while it has no step, except the watchdog, which only queries its
  // event.
  Slot& slot = slots_[index % options_.n_slots];
  const cudaStream_t stream = options_.link->stream();
  if (options_.n_slots > kMostQueued && index >= kMostQueued) {
    SC_RETURN_IF_ERROR(slots_[(index - kMostQueued) % options_.n_slots].full.Wait());
  }
  if (slot.was_taken) SC_RETURN_IF_ERROR(slot.free.Precede(stream));
  SC_RETURN_IF_ERROR(
      options_.link->Receive(Memory(index), expected.bytes + kernels::cuda::kMessageSealBytes));
  SC_RETURN_IF_ERROR(slot.full.Record(stream));
  const MutexLock lock(mutex_);
  slot.step = expected.step;
  slot.was_taken = false;
  ++n_queued_;
  queueing_ = 0;
  ++counters_.received_frames;
  counters_.received_bytes += expected.bytes;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status ReceiveRing::Copy(uint64_t index, void* to, size_t bytes) {
  Slot& slot = slots_[index % options_.n_slots];
  const cudaStream_t compute = options_.compute;
  SC_RETURN_IF_ERROR(slot.full.Precede(compute));
  SC_RETURN_IF_ERROR(ToStatus(
      kernels::cuda::OpenMessage(compute, Memory(index), to, bytes,
                                 {.epoch = options_.epoch, .step = slot.step}, options_.broken),
      "cannot copy a message"));
  if (options_.poison && !options_.overwrites) {
    SC_RETURN_IF_ERROR(
        ToStatus(cudaMemsetAsync(Memory(index), 0xff, options_.slot_bytes, compute), "no memset"));
  }
  SC_RETURN_IF_ERROR(slot.free.Record(compute));
  slot.was_taken = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> ReceiveRing::Take(uint64_t step, void* to, size_t bytes) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_.ok() || n_queued_ > n_taken_;
  });
  if (!closed_.ok()) return closed_;
  const uint64_t index = n_taken_;
  const Slot& slot = slots_[index % options_.n_slots];
  if (slot.step != step) {
    return absl::InternalError(
        fmt::format("{}: the message of step {} came instead of that of step {}",
                    options_.link->name(), slot.step, step));
  }
  lock.unlock();
  const bool arrived = slot.full.IsReached();
  SC_RETURN_IF_ERROR(Copy(index, to, bytes));
  lock.lock();
  ++n_taken_;
  changed_.notify_all();
  return arrived;
}

absl::Status ReceiveRing::TakeLatest(uint64_t step, void* to, size_t bytes) {
  SC_CHECK(options_.overwrites && step > 0);
  MutexLock lock(mutex_);
  uint64_t found = 0;
  const auto find = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!closed_.ok()) return true;
    const uint64_t n_kept = std::min<uint64_t>(n_queued_, options_.n_slots);
    for (found = n_queued_ - n_kept; found < n_queued_; ++found) {
      if (slots_[found % options_.n_slots].step >= step) return true;
    }
    return false;
  };
  changed_.wait(lock, find);
  if (!closed_.ok()) return closed_;
  copied_ = &slots_[found % options_.n_slots];
  lock.unlock();
  absl::Status copied = Copy(found, to, bytes);
  lock.lock();
  copied_ = nullptr;
  changed_.notify_all();
  return copied;
}

void ReceiveRing::Close(const absl::Status& reason) {
  const MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = reason;
  changed_.notify_all();
}

absl::Status ReceiveRing::CheckProgress(std::chrono::milliseconds timeout) {
  const MutexLock lock(mutex_);
  const uint64_t n_done = Progress::CountDone(
      n_queued_, options_.n_slots, [this](uint64_t slot) { return slots_[slot].full.IsReached(); });
  const uint64_t n_due = n_queued_ + (queueing_ != 0);
  if (progress_.Stalled(n_due, n_done, Progress::Clock::now()) < timeout) return absl::OkStatus();
  const uint64_t step = n_done < n_queued_ ? slots_[n_done % options_.n_slots].step : queueing_;
  return absl::DeadlineExceededError(
      fmt::format("{}: nothing was received for {} ms, although step {} is in progress",
                  options_.link->name(), timeout.count(), step));
}

ChannelCounters ReceiveRing::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

}  // namespace stagecoach::worker
