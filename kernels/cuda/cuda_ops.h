// Ops for NVIDIA GPUs of compute capability 8.0 and later.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

struct CudaOptions {
  int32_t device = 0;  // CUDA device ordinal
  // Rows are bit-identical for any number of rows and any chunking, as on the CPU; slower. If
  // false, they agree up to rounding.
  bool batch_invariant = false;
  // For tests; 0: off. Inserts delays between kernels and fills unwritten memory with NaN; see
  // disturbance.h.
  uint64_t disturbance_seed = 0;
  uint64_t reserved_bytes = 0;  // Memory() reports them as in use
};

// The result is asynchronous: calls queue work and return. UNAVAILABLE: no driver or no such
// device. FAILED_PRECONDITION: the compute capability is too low. INTERNAL and RESOURCE_EXHAUSTED:
// CUDA fails or memory is short.
absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options);

}  // namespace stagecoach::kernels
