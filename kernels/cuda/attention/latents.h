// Appends latents to the cache. See the operation of the same name; errors are launch errors.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

cudaError_t LatentAppend(const Stream& stream, const LatentAppendArgs& args);

}  // namespace stagecoach::kernels::cuda
