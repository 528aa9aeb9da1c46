// Products of 8 values at a time, for rows that are not worth tensor cores.
#pragma once

#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

inline constexpr int kPiece = 8;  // elements of 16 bits: 16 bytes

template <typename T>
__device__ __forceinline__ float2 TwoFloats(uint32_t pair) {
  return {ToFloat(T{static_cast<uint16_t>(pair)}), ToFloat(T{static_cast<uint16_t>(pair >> 16)})};
}
template <>
__device__ __forceinline__ float2 TwoFloats<BF16>(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// sum + the products of a piece's values.
template <typename T>
__device__ __forceinline__ float AddProducts(float sum, const uint4& a, const uint4& b) {
  const uint32_t of_a[4] = {a.x, a.y, a.z, a.w}, of_b[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = TwoFloats<T>(of_a[i]), y = TwoFloats<T>(of_b[i]);
    sum += x.x * y.x;
    sum += x.y * y.y;
  }
  return sum;
}

}  // namespace stagecoach::kernels::cuda
