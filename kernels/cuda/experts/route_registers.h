// Ops::Route with a row's logits in the registers of a warp.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// At most 256 experts, of which a row uses at most 32; softmax.
bool HasRouteInRegisters(const RouteArgs& args);
cudaError_t RouteInRegisters(const Stream& stream, const RouteArgs& args);

}  // namespace stagecoach::kernels::cuda
