#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// As Ops::Norm, one block a row; x or out is float32. Widths up to kMaxNormWidth, where no multiple
// of 4 up to a quarter of it.
cudaError_t Norm(const Stream& stream, const NormArgs& args);
inline constexpr int32_t kMaxNormWidth = 32768;

}  // namespace stagecoach::kernels::cuda
