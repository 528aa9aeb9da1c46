#include "kernels/cuda/device/device_buffer.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/size.h"

namespace stagecoach::kernels::cuda {

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error)));
}

absl::StatusOr<Buffer> AllocateDevice(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (error == cudaSuccess) {
    return Buffer{std::shared_ptr<void>(data, [](void* memory) { cudaFree(memory); }), bytes};
  }
  cudaGetLastError();  // clears the error, so that later calls do not return it
  if (error != cudaErrorMemoryAllocation) return ToStatus(error, "cannot allocate memory");
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return absl::ResourceExhaustedError(fmt::format("the GPU has no {} left: {} of {} are free",
                                                  FormatBytes(bytes), FormatBytes(free),
                                                  FormatBytes(total)));
}

absl::StatusOr<Buffer> AllocatePinned(size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocDefault) == cudaSuccess) {
    return Buffer{std::shared_ptr<void>(data, [](void* memory) { cudaFreeHost(memory); }), bytes};
  }
  cudaGetLastError();
  return absl::ResourceExhaustedError(
      fmt::format("no {} of host memory that the GPU reaches (see ulimit -l)", FormatBytes(bytes)));
}

}  // namespace stagecoach::kernels::cuda
