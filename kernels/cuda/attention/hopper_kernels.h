// Interface between hopper_prefill.cpp and one translation unit per kernel: each takes a minute to
// compile.
#pragma once

#include "kernels/cuda/attention/hopper_prefill.h"

namespace stagecoach::kernels::cuda {

// Processes some of the KV heads, with gathered keys, and their query heads.
using HopperKernel = cudaError_t (*)(const Stream& stream, const AttentionArgs& args,
                                     const HopperPlan& plan, const KvHeads& heads,
                                     const GatheredKeys& keys);

template <int kDim, bool kWithSoftcap>
cudaError_t RunHopperPrefill(const Stream& stream, const AttentionArgs& args,
                             const HopperPlan& plan, const KvHeads& heads,
                             const GatheredKeys& keys);

}  // namespace stagecoach::kernels::cuda
