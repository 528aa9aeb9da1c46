// Owns a CUDA event.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/device_buffer.h"

namespace stagecoach::worker {

class CudaEvent {
 public:
  // kOrder and kWait record no time, and kOrder and kTime wake no thread: both cost the GPU less.
  enum class Use { kOrder, kWait, kTime };

  static absl::StatusOr<CudaEvent> Make(Use use) {
    CudaEvent event;
    const unsigned flags = (use == Use::kWait ? cudaEventBlockingSync : 0u) |
                           (use == Use::kTime ? 0u : cudaEventDisableTiming);
    absl::Status made =
        kernels::cuda::ToStatus(cudaEventCreateWithFlags(&event.handle_, flags), "no event");
    if (!made.ok()) return made;
    return event;
  }

  CudaEvent() = default;
  CudaEvent(CudaEvent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaEvent() {
    if (handle_ != nullptr) cudaEventDestroy(handle_);
  }

  absl::Status Record(cudaStream_t stream) const {
    return kernels::cuda::ToStatus(cudaEventRecord(handle_, stream), "the GPU failed");
  }
  // Work queued on `stream` from now on runs after the work recorded last.
  absl::Status Precede(cudaStream_t stream) const {
    return kernels::cuda::ToStatus(cudaStreamWaitEvent(stream, handle_, 0), "the GPU failed");
  }
  absl::Status Wait() const {
    return kernels::cuda::ToStatus(cudaEventSynchronize(handle_), "the GPU failed");
  }
  bool IsReached() const { return cudaEventQuery(handle_) == cudaSuccess; }
  // Both events must be reached and have been made for kTime.
  absl::StatusOr<double> MsSince(const CudaEvent& start) const {
    float ms = 0;
    absl::Status status = kernels::cuda::ToStatus(cudaEventElapsedTime(&ms, start.handle_, handle_),
                                                  "the GPU failed");
    if (!status.ok()) return status;
    return ms;
  }

 private:
  cudaEvent_t handle_ = nullptr;
};

}  // namespace stagecoach::worker
