#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Ops::Activate, gated, of sums of codes: x in bfloat16, times x_scales [n_rows] and w_scales
// [2 * width]. The width is a multiple of 8.
bool HasFp8Activate(const ActivationArgs& args);
cudaError_t Fp8Activate(const Stream& stream, const ActivationArgs& args, const float* x_scales,
                        const float* w_scales);

}  // namespace stagecoach::kernels::cuda
