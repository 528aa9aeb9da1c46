#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Biases of rows that are sorted by expert: row i has that of experts[order[i]].
struct ExpertBias {
  const float* bias = nullptr;  // [n_experts, 2 * width] or null
  const int32_t *experts = nullptr, *order = nullptr;
};

// See Ops::Activate, for a gated activation: x + bias in place of x. It is the kernel for
// ActivationArgs::clamped and for biases; without either, Activate is faster.
cudaError_t ActivateBiased(const Stream& stream, const ActivationArgs& args,
                           const ExpertBias& bias);

}  // namespace stagecoach::kernels::cuda
