// Gated activations in device code.
#pragma once

#include "common/model/layer_kinds.h"
#include "kernels/cuda/elementwise/activated.h"

namespace stagecoach::kernels::cuda {

template <bool kExact>
__device__ __forceinline__ float ClampedGluOf(float gate, float up, const ClampedGlu& glu) {
  const float g = fminf(gate, glu.limit);
  const float u = fminf(fmaxf(up, -glu.limit), glu.limit);
  return g * Sigmoid<kExact>(glu.slope * g) * (1.0f + u);
}

// clamped: without effect if its limit is 0. kExact: see Sigmoid
template <bool kExact>
__device__ __forceinline__ float GatedBy(Activation kind, const ClampedGlu& clamped, float gate,
                                         float up) {
  return clamped.limit > 0 ? ClampedGluOf<kExact>(gate, up, clamped)
                           : ActivatedBy<kExact>(kind, gate) * up;
}

}  // namespace stagecoach::kernels::cuda
