// Products of heads with matrices of their own. See the operation of the same name; errors are
// launch errors.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// A row's result does not depend on other rows.
cudaError_t HeadGemm(const Stream& stream, const HeadGemmArgs& args);

}  // namespace stagecoach::kernels::cuda
