// Operands of warpgroup MMAs from packed weights: what hopper_rows.inl and hopper_experts.inl
// share.
#pragma once

#include "kernels/cuda/hopper/ring_turn.h"
#include "kernels/cuda/packed/packed_codes.h"

namespace stagecoach::kernels::cuda {

// The compiler must not move the making of `a` across this.
__device__ __forceinline__ void FenceOperand(uint32_t (&a)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// A pair of codes, scaled and rounded. `pair`: not less zeros, if IsShifted. half: of the chunk
template <typename Type, typename T>
__device__ __forceinline__ uint32_t ScaledPair(uint32_t pair, const BlockScales<Type, T>& scales,
                                               int r, int half) {
  constexpr PackedForm kForm = Type::kForm;
  const float scale = scales.scale[r][HasHalfScales(kForm) ? half : 0];
  float offset = 0;
  if constexpr (IsShifted(kForm)) {
    offset = scale * ToFloat(T{static_cast<uint16_t>(scales.minus_zero[r])});
  }
  if constexpr (HasMinima(kForm)) offset -= scales.minimum[r];
  return PackPair<T>(fmaf(scale, ToFloat(T{static_cast<uint16_t>(pair)}), offset),
                     fmaf(scale, ToFloat(T{static_cast<uint16_t>(pair >> 16)}), offset));
}

}  // namespace stagecoach::kernels::cuda
