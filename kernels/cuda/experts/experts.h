// Mixture of experts: routing, and the experts' MLPs over rows grouped by expert on the device.
#pragma once

#include <cstddef>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// See Ops::Route. Errors are launch errors.
cudaError_t Route(const Stream& stream, const RouteArgs& args);

// Bytes of ExpertMlpArgs::scratch for experts with weights of `dtype`.
size_t ExpertScratchBytes(const ExpertShape& shape, DType dtype);

// See Ops::ExpertMlp, for weights of x's dtype. up, down: tables of the matrices (expert_tables.h).
// At most kMaxExperts experts. If batch_invariant, a row's result does not depend on the number of
// rows. Errors are launch errors.
cudaError_t ExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                      const void* const* down, bool batch_invariant);

}  // namespace stagecoach::kernels::cuda
