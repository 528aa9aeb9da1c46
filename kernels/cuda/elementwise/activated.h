// Activation functions in device code.
#pragma once

#include "common/model/layer_kinds.h"
#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

// 1 / (1 + e^-x). If the result is rounded to 16 bits afterwards (kExact is false), an
// approximation to 2 ULP of float32 is enough.
template <bool kExact>
__device__ __forceinline__ float Sigmoid(float x) {
  if constexpr (kExact) return 1.0f / (1.0f + expf(-x));
#ifdef __CUDA_ARCH__
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return inverse;
#else
  return __fdividef(1.0f, 1.0f + __expf(-x));
#endif
}

template <Activation kKind, bool kExact>
__device__ __forceinline__ float Activated(float x) {
  if constexpr (kKind == Activation::kRelu) {
    return x > 0 ? x : 0;
  } else if constexpr (kKind == Activation::kReluSquared) {
    return x > 0 ? x * x : 0;
  } else if constexpr (kKind == Activation::kGelu) {
    return 0.5f * x * erfcf(-x * 0.70710678118654752f);
  } else if constexpr (kKind == Activation::kGeluTanh) {
    // 0.5 x (1 + tanh(inner))
    const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return x * Sigmoid<kExact>(2.0f * inner);
  } else {
    return x * Sigmoid<kExact>(x);
  }
}

// The same for a kind that is only known at run time.
template <bool kExact>
__device__ __forceinline__ float ActivatedBy(Activation kind, float x) {
  switch (kind) {
    case Activation::kRelu:
      return Activated<Activation::kRelu, kExact>(x);
    case Activation::kReluSquared:
      return Activated<Activation::kReluSquared, kExact>(x);
    case Activation::kGelu:
      return Activated<Activation::kGelu, kExact>(x);
    case Activation::kGeluTanh:
      return Activated<Activation::kGeluTanh, kExact>(x);
    case Activation::kSilu:
      break;
  }
  return Activated<Activation::kSilu, kExact>(x);
}

}  // namespace stagecoach::kernels::cuda
