#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Norms q over all its heads, and k over all of its, in place: the first part of RopeAppend with
// RopeAppendArgs::norms_all_heads.
cudaError_t NormAllHeads(const Stream& stream, const RopeAppendArgs& args);

}  // namespace stagecoach::kernels::cuda
