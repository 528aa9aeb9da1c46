// Ops for NVIDIA GPUs of compute capability 8.0 and later.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

struct CudaOptions {
  int32_t device = 0;  // by CUDA's count
  // Rows are bit-identical whatever the number of rows and chunks, as on the CPU; slower. Else they
  // are the same up to rounding.
  bool batch_invariant = false;
  // For tests, 0: off. Delays between kernels, and NaN in memory that nobody has written; see
  // disturbance.h.
  uint64_t disturbance_seed = 0;
};

// Runs ahead: calls queue work and return. UNAVAILABLE: no driver or no such device;
// FAILED_PRECONDITION: the device is too old.
absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options);

}  // namespace stagecoach::kernels
