// Memory of the GPU, and memory of the host that the GPU reaches.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_api.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// OK, or INTERNAL with `what` and CUDA's own words.
absl::Status ToStatus(cudaError_t error, const char* what);

// Of undefined content. RESOURCE_EXHAUSTED says how much was asked for and how much there is.
absl::StatusOr<Buffer> AllocateDevice(size_t bytes);
absl::StatusOr<Buffer> AllocatePinned(size_t bytes);

}  // namespace stagecoach::kernels::cuda
