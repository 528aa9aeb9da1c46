// Arithmetic on pairs of 16-bit values in a register, and on its bits.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

template <typename T>
inline constexpr bool kIsBF16 = std::is_same_v<T, BF16>;

constexpr uint32_t BothHalves(uint32_t half) { return half << 16 | half; }

#ifdef STAGECOACH_EMULATED_CUDA
template <typename T, typename Call>
uint32_t OnHalves(uint32_t a, uint32_t b, const Call& call) {
  const auto value = [](uint32_t pair, int shift) {
    return ToFloat(T{static_cast<uint16_t>(pair >> shift)});
  };
  return PackPair<T>(call(value(a, 0), value(b, 0)), call(value(a, 16), value(b, 16)));
}
template <typename T>
uint32_t AddPairs(uint32_t a, uint32_t b) {
  return OnHalves<T>(a, b, [](float x, float y) { return x + y; });
}
template <typename T>
uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  return OnHalves<T>(a, b, [](float x, float y) { return x * y; });
}
#else
template <typename T>
__device__ __forceinline__ uint32_t AddPairs(uint32_t a, uint32_t b) {
  uint32_t sum;
  if constexpr (kIsBF16<T>) {  // compute capability 8 has no other addition of bfloat16
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
  } else {
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  }
  return sum;
}
template <typename T>
__device__ __forceinline__ uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  uint32_t product;
  if constexpr (kIsBF16<T>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  }
  return product;
}
#endif

// (x & mask) | bits, as one instruction.
__device__ __forceinline__ uint32_t AndOr(uint32_t x, uint32_t mask, uint32_t bits) {
#if defined(__CUDA_ARCH__)
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
  return result;
#else
  return (x & mask) | bits;
#endif
}

// n: 0 to 31
__device__ __forceinline__ uint32_t RotateRight(uint32_t x, int n) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(x, x, static_cast<unsigned>(n));
#else
  return std::rotr(x, n);
#endif
}

constexpr uint32_t ShiftRight(uint32_t x, int n) { return n >= 0 ? x >> n : x << -n; }

}  // namespace stagecoach::kernels::cuda
