// Latent attention's own operations. See the operations of the same names; errors are launch
// errors.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

cudaError_t HeadGemm(const Stream& stream, const HeadGemmArgs& args);
cudaError_t LatentAppend(const Stream& stream, const LatentAppendArgs& args);

}  // namespace stagecoach::kernels::cuda
