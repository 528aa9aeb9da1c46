#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/recurrent_args.h"

namespace stagecoach::kernels::cuda {

// See the operations of the same names. Errors are launch errors.
cudaError_t SplitGate(const Stream& stream, const SplitGateArgs& args);
cudaError_t SigmoidGate(const Stream& stream, const SigmoidGateArgs& args);

}  // namespace stagecoach::kernels::cuda
