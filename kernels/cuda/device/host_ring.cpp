#include "kernels/cuda/device/host_ring.h"

#include "common/check.h"
#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"

namespace stagecoach::kernels::cuda {

HostRing::~HostRing() {
  for (const Segment& segment : segments_) {
    if (segment.done != nullptr) cudaEventDestroy(segment.done);
  }
}

absl::Status HostRing::Init(const Stream* stream) {
  stream_ = stream;
  for (Segment& segment : segments_) {
    SC_ASSIGN_OR_RETURN(segment.memory, AllocatePinned(kSegmentBytes));
    SC_RETURN_IF_ERROR(ToStatus(
        cudaEventCreateWithFlags(&segment.done, cudaEventBlockingSync | cudaEventDisableTiming),
        "no event"));
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> HostRing::Take(size_t bytes) {
  SC_CHECK(bytes <= kSegmentBytes);
  if (used_ + bytes > kSegmentBytes) {
    SC_RETURN_IF_ERROR(
        ToStatus(cudaEventRecord(segments_[current_].done, stream_->handle), "the GPU failed"));
    current_ = (current_ + 1) % segments_.size();
    used_ = 0;
    SC_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(segments_[current_].done), "the GPU failed"));
  }
  void* const taken = segments_[current_].memory.As<unsigned char>() + used_;
  used_ += (bytes + 63) / 64 * 64;
  return taken;
}

}  // namespace stagecoach::kernels::cuda
