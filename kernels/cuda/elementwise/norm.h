#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// See Ops::Norm; one CTA per row. x or out must be float32. Widths up to kMaxNormWidth, or up to a
// quarter of it if the width is not a multiple of 4.
cudaError_t Norm(const Stream& stream, const NormArgs& args);
inline constexpr int32_t kMaxNormWidth = 32768;

}  // namespace stagecoach::kernels::cuda
