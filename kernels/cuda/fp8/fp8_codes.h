// e4m3 codes in registers, four in a word.
#pragma once

#include "kernels/cuda/device/pairs.h"
#include "kernels/cuda/fp8/fp8_part.h"

namespace stagecoach::kernels::cuda {

// A weight's code, as a type of kernels.
struct Fp8Code {
  uint8_t bits;
};

// The values of a word's inputs 0 and 1, and of 2 and 3 (fp8_part.h): pairs of 16-bit values.
// Exact: shifts bring exponent and mantissa to their places, and one multiplication corrects the
// exponent's bias. factor: the pair {f, f}, where f is 2^120 (bfloat16) or 2^8 (float16) times a
// scale.
template <typename T>
__device__ __forceinline__ void Fp8Pairs(uint32_t word, uint32_t factor, uint32_t& first,
                                         uint32_t& second) {
  constexpr int kShift = kIsBF16<T> ? 4 : 1;
  constexpr uint32_t kSign = 0x80008000u, kMagnitude = BothHalves(0x7f00u >> kShift);
  first = AndOr(word << 8, kSign, word << (8 - kShift) & kMagnitude);
  second = AndOr(word, kSign, word >> kShift & kMagnitude);
  first = MultiplyPairs<T>(first, factor);
  second = MultiplyPairs<T>(second, factor);
}
template <typename T>
__device__ __forceinline__ void Fp8Pairs(uint32_t word, uint32_t& first, uint32_t& second) {
  Fp8Pairs<T>(word, BothHalves(kIsBF16<T> ? 0x7b80 : 0x5c00), first, second);
}

// The values of a word's bytes 0 and 1, which are inputs 0 and 2, and of bytes 2 and 3, which are
// inputs 1 and 3: pairs of float16 values. Exact. Newer devices have an instruction for each pair,
// with which a code for NaN gives NaN. Others give +-480 for it.
__device__ __forceinline__ void Fp8HalfPairs(uint32_t word, uint32_t& first, uint32_t& second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  // The instruction reads either half of a register, if halves get their names like this. After a
  // shift and a conversion, the compiler keeps the shift.
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}"
      : "=r"(first), "=r"(second)
      : "r"(word));
#else
  uint32_t even, odd;
  Fp8Pairs<F16>(word, even, odd);
  first = (even & 0xffffu) | odd << 16;
  second = even >> 16 | (odd & 0xffff0000u);
#endif
}

// The value of a code.
__device__ __forceinline__ float FloatOfFp8(uint32_t code) {
  // 2^120 corrects the exponent's bias, for subnormal codes, too.
  const float magnitude = __uint_as_float((code & 0x7fu) << 20) * 0x1p120f;
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

// The nearest code, the even one on a tie. Values beyond +-448 give +-448; NaN gives a NaN code.
__device__ __forceinline__ uint32_t Fp8OfFloat(float value) {
  const uint32_t bits = __float_as_uint(value), sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;  // 448
  if (magnitude < 0x3c800000u) {                      // 2^-6: subnormal codes are multiples of 2^-9
    // Adding 1.5 * 2^23 rounds to an integer.
    const float rounded = __uint_as_float(magnitude) * 512.0f + 12582912.0f;
    return sign | (__float_as_uint(rounded) & 0x0fu);
  }
  const uint32_t nearest = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  return sign | ((nearest >> 20) - (120u << 3));
}

// The word of four inputs.
__device__ __forceinline__ uint32_t Fp8InputWord(const float (&inputs)[4]) {
  const float a = inputs[0], b = inputs[2], c = inputs[1], d = inputs[3];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return static_cast<uint32_t>(high) << 16 | low;
#else
  return Fp8OfFloat(a) | Fp8OfFloat(b) << 8 | Fp8OfFloat(c) << 16 | Fp8OfFloat(d) << 24;
#endif
}

}  // namespace stagecoach::kernels::cuda
