#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Route with RouteArgs::sigmoid, for up to kMaxExperts experts. Errors are launch errors.
cudaError_t SigmoidRoute(const Stream& stream, const RouteArgs& args);

}  // namespace stagecoach::kernels::cuda
