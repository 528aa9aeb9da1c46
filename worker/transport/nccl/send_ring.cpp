#include "worker/transport/nccl/send_ring.h"

#include <fmt/format.h>

#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {

absl::StatusOr<std::unique_ptr<SendRing>> SendRing::Start(Options options) {
  std::unique_ptr<SendRing> ring(new SendRing(std::move(options)));
  ring->slots_.resize(ring->options_.n_slots);
  for (Slot& slot : ring->slots_) {
    SC_ASSIGN_OR_RETURN(slot.full, CudaEvent::Make(CudaEvent::Use::kOrder));
    SC_ASSIGN_OR_RETURN(slot.free, CudaEvent::Make(CudaEvent::Use::kOrder));
  }
  ring->thread_ = std::thread([ring = ring.get()] { ring->Run(); });
  return ring;
}

SendRing::~SendRing() {
  Close(absl::CancelledError("the link has ended"));
  if (thread_.joinable()) thread_.join();
}

absl::Status SendRing::Put(uint64_t step, const void* from, size_t bytes) {
  SC_CHECK(bytes + kernels::cuda::kMessageSealBytes <= options_.slot_bytes &&
           bytes % sizeof(uint32_t) == 0);
  uint64_t index = 0;
  {
    MutexLock lock(mutex_);
    index = n_put_;
    // The slot's event is meaningful only after its previous message is queued on the link.
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !closed_.ok() || n_queued_ + options_.n_slots > index;
    });
    if (!closed_.ok()) return closed_;
  }
  // Without the lock: a launch blocks while the stream's queue is full, and the watchdog must still
  // get the lock.
  const Slot& slot = slots_[index % options_.n_slots];
  if (index >= options_.n_slots) SC_RETURN_IF_ERROR(slot.free.Precede(options_.compute));
  SC_RETURN_IF_ERROR(kernels::cuda::ToStatus(
      kernels::cuda::SealMessage(options_.compute, from, Memory(index), bytes,
                                 {.epoch = options_.epoch, .step = step}, options_.broken),
      "cannot copy a message"));
  SC_RETURN_IF_ERROR(slot.full.Record(options_.compute));
  const MutexLock lock(mutex_);
  ++n_put_;
  waiting_.push_back(bytes);
  changed_.notify_all();
  return absl::OkStatus();
}

void SendRing::Run() {
  cudaSetDevice(options_.device);
  for (;;) {
    size_t bytes = 0;
    uint64_t index = 0;
    {
      MutexLock lock(mutex_);
      changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !closed_.ok() || !waiting_.empty();
      });
      if (!closed_.ok()) return;
      bytes = waiting_.front();
      waiting_.pop_front();
      index = n_queued_;
    }
    if (const absl::Status sent = SendNext(index, bytes); !sent.ok()) {
      options_.on_failure(sent);
      return;
    }
  }
}

absl::Status SendRing::SendNext(uint64_t index, size_t bytes) {
  const Slot& slot = slots_[index % options_.n_slots];
  const cudaStream_t stream = options_.link->stream();
  SC_RETURN_IF_ERROR(slot.full.Precede(stream));
  SC_RETURN_IF_ERROR(options_.link->Send(Memory(index), bytes + kernels::cuda::kMessageSealBytes));
  SC_RETURN_IF_ERROR(slot.free.Record(stream));
  const MutexLock lock(mutex_);
  ++n_queued_;
  ++counters_.sent_frames;
  counters_.sent_bytes += bytes;
  changed_.notify_all();
  return absl::OkStatus();
}

void SendRing::Close(const absl::Status& reason) {
  const MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = reason;
  changed_.notify_all();
}

absl::Status SendRing::CheckProgress(std::chrono::milliseconds timeout) {
  const MutexLock lock(mutex_);
  const uint64_t n_done = Progress::CountDone(
      n_queued_, options_.n_slots, [this](uint64_t slot) { return slots_[slot].free.IsReached(); });
  if (progress_.Stalled(n_put_, n_done, Progress::Clock::now()) < timeout) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      fmt::format("{}: nothing was sent for {} ms", options_.link->name(), timeout.count()));
}

ChannelCounters SendRing::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

}  // namespace stagecoach::worker
