// Element types in device code: conversions, wide loads, loads with cache hints.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"
#ifdef STAGECOACH_EMULATED_CUDA
#include "common/float_convert.h"
#else
#include <cuda_fp16.h>
#endif

namespace stagecoach::kernels::cuda {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(BF16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ __forceinline__ float ToFloat(F16 value) {
#ifdef STAGECOACH_EMULATED_CUDA
  return FloatFromF16(value.bits);
#else
  return __half2float(__ushort_as_half(value.bits));
#endif
}

// The product is rounded to float32 before any addition: this prevents contraction to FMA.
__device__ __forceinline__ float RoundedProduct(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// Rounds to nearest, ties to even.
template <typename T>
__device__ __forceinline__ T FromFloat(float value);
template <>
__device__ __forceinline__ float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ BF16 FromFloat<BF16>(float value) {
#ifdef STAGECOACH_EMULATED_CUDA
  return {BF16FromFloat(value)};
#else
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return {bits};
#endif
}
template <>
__device__ __forceinline__ F16 FromFloat<F16>(float value) {
#ifdef STAGECOACH_EMULATED_CUDA
  return {F16FromFloat(value)};
#else
  return {__half_as_ushort(__float2half_rn(value))};
#endif
}

// Packs two values into a register, `low` in the lower half.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  return FromFloat<T>(low).bits | (static_cast<uint32_t>(FromFloat<T>(high).bits) << 16);
}
#ifndef STAGECOACH_EMULATED_CUDA
template <>
__device__ __forceinline__ uint32_t PackPair<BF16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ uint32_t PackPair<F16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
#endif

// kN consecutive values. If kN * sizeof(T) is 4, 8 or 16 bytes, one instruction reads or writes
// them all and the address must be a multiple of that size.
template <typename T, int kN>
struct alignas(kN * sizeof(T) < 16 ? kN * sizeof(T) : 16) Values {
  T at[kN];
};

template <int kN, typename T>
__device__ __forceinline__ void LoadFloats(const T* from, float (&to)[kN]) {
  const Values<T, kN> values = *reinterpret_cast<const Values<T, kN>*>(from);
#pragma unroll
  for (int i = 0; i < kN; ++i) to[i] = ToFloat(values.at[i]);
}

template <int kN, typename T>
__device__ __forceinline__ void StoreFloats(const float (&from)[kN], T* to) {
  Values<T, kN> values;
#pragma unroll
  for (int i = 0; i < kN; ++i) values.at[i] = FromFloat<T>(from[i]);
  *reinterpret_cast<Values<T, kN>*>(to) = values;
}

// Loads plan data that an earlier, completed kernel wrote. Bypasses L1, which may hold a stale
// line.
__device__ __forceinline__ int32_t LoadPlan(const int32_t* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(from);
#else
  return *from;
#endif
}

// For structs with a size and an alignment that are multiples of 16 bytes.
template <typename Struct>
__device__ __forceinline__ Struct LoadPlan(const Struct* from) {
  static_assert(sizeof(Struct) % sizeof(uint4) == 0 && alignof(Struct) % sizeof(uint4) == 0);
#if defined(__CUDA_ARCH__)
  union {
    Struct value;
    uint4 words[sizeof(Struct) / sizeof(uint4)];
  } loaded;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Struct) / sizeof(uint4)); ++i) {
    loaded.words[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
  }
  return loaded.value;
#else
  return *from;
#endif
}

// Loads values that other CTAs of the same kernel wrote; bypasses L1.
__device__ __forceinline__ float2 LoadFresh(const float* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(reinterpret_cast<const float2*>(from));
#else
  return *reinterpret_cast<const float2*>(from);
#endif
}

__device__ __forceinline__ float LoadFreshOne(const float* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(from);
#else
  return *from;
#endif
}

// Prefetches the 128-byte line around `at` into L2.
__device__ __forceinline__ void PrefetchLine(const void* at) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  static_cast<void>(at);
#endif
}

// Loads 16 bytes that are read only once, without allocation in L1. Earlier kernels may have
// written them.
__device__ __forceinline__ uint4 LoadOnce(const void* from) {
#if defined(__CUDA_ARCH__)
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
#else
  return *static_cast<const uint4*>(from);
#endif
}

}  // namespace stagecoach::kernels::cuda
