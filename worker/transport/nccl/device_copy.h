// Copies within a device by a kernel. A large cudaMemcpyAsync takes a copy engine, whose queue it
// may share with copies of other streams that wait for what a neighbour sends later.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/elementwise/elementwise.h"

namespace stagecoach::worker {

// bytes: a multiple of 4; bits stay as they are.
inline absl::Status CopyOnDevice(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  constexpr int32_t kMultiprocessors = 64;  // more do not copy faster
  return kernels::cuda::ToStatus(
      kernels::cuda::Convert({.handle = stream, .n_multiprocessors = kMultiprocessors},
                             {from, DType::kF32}, {to, DType::kF32},
                             static_cast<int64_t>(bytes / sizeof(float))),
      "cannot copy a message");
}

}  // namespace stagecoach::worker
