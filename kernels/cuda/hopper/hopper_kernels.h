// Between hopper_prefill.cpp and one unit a kernel: each takes a minute to compile.
#pragma once

#include "kernels/cuda/hopper/hopper_prefill.h"

namespace stagecoach::kernels::cuda {

using HopperKernel = cudaError_t (*)(const Stream& stream, const AttentionArgs& args,
                                     const HopperPlan& plan, const GatheredKeys& keys);

template <int kDim, bool kWithSoftcap>
cudaError_t RunHopperPrefill(const Stream& stream, const AttentionArgs& args,
                             const HopperPlan& plan, const GatheredKeys& keys);

}  // namespace stagecoach::kernels::cuda
