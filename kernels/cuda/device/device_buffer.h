// GPU memory, and pinned host memory that the GPU can access.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_api.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Returns OK, or INTERNAL with `what` and CUDA's error string.
absl::Status ToStatus(cudaError_t error, const char* what);

// Contents are undefined. RESOURCE_EXHAUSTED states the requested size, and for device memory also
// the free size.
absl::StatusOr<Buffer> AllocateDevice(size_t bytes);
absl::StatusOr<Buffer> AllocatePinned(size_t bytes);

}  // namespace stagecoach::kernels::cuda
