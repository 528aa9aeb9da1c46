// The inputs of a product with one row, as float16 in shared memory: for weights whose codes are
// exact and cheap to make in float16, but not in bfloat16.
//
// Each warp converts the inputs that it multiplies, and shares nothing, so that warps do not wait
// for each other. It multiplies them by a power of two of its own, with which the largest one is
// between 2^14 and 2^15. bfloat16 has 8 significant bits and float16 has 11, so an input changes
// only if it is below 2^-28 of the largest one.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {

// Powers of two, both normal numbers: `factor` brings values up to `largest` to float16's range,
// and `back` = 1 / factor.
struct HalfFactor {
  float factor, back;

  // largest: bits of the largest absolute value, a float32
  explicit __device__ __forceinline__ HalfFactor(uint32_t largest) {
    // A smaller exponent has no normal inverse. The inputs are then 0, or too small to matter.
    const uint32_t exponent = max(largest >> 23, 15u);
    factor = __uint_as_float((268u - exponent) << 23);  // 2^14 / 2^(exponent - 127)
    back = __uint_as_float((exponent - 14u) << 23);
  }
};

// The inputs of one warp: pieces of kPiece inputs, the one at warp * kPiece and every one
// kWarps * kPiece later. Each lane converts kPiece / 32 inputs of each.
template <typename T, int kPiece, int kWarps>
struct OneRowPart {
  static constexpr int kN = kPiece / kWarpThreads;
  int cols;  // a multiple of kN
  int warp, lane;

  // Converts x, [cols], and calls store(at, values): the lane's kN inputs from `at` on, times the
  // factor, or zeros beyond the last one. The whole warp calls it. x may be where `store` writes,
  // if a call writes only what the lane got its values from. Returns the factor.
  template <typename Store>
  __device__ __forceinline__ HalfFactor Convert(const T* x, Store&& store) const {
    uint32_t largest = 0;
    ForEach(x, [&](int, const float(&values)[kN]) {
#pragma unroll
      for (const float value : values) {
        largest = max(largest, __float_as_uint(value) & 0x7fffffffu);
      }
    });
    const HalfFactor factor(WarpMax(largest));
    ForEach(x, [&](int at, float(&values)[kN]) {
#pragma unroll
      for (float& value : values) value *= factor.factor;
      store(at, values);
    });
    return factor;
  }

 private:
  using Words = Values<uint32_t, kN * sizeof(T) / sizeof(uint32_t)>;
  static constexpr int kStep = kWarps * kPiece;
  static constexpr int kTogether = 8;  // pieces whose loads are in flight

  // Calls use(at, values) for the lane's inputs of each piece. It loads them before any call, since
  // stores of the calls could change what is loaded behind them, as far as the compiler knows.
  template <typename Use>
  __device__ __forceinline__ void ForEach(const T* x, Use&& use) const {
    for (int first = warp * kPiece; first < cols; first += kTogether * kStep) {
      const int at = first + lane * kN;
      Words loaded[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        loaded[i] = {};
        if (at + i * kStep < cols) {
          loaded[i] = *reinterpret_cast<const Words*>(x + at + i * kStep);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i * kStep >= cols) break;
        float values[kN];
#pragma unroll
        for (int e = 0; e < kN; ++e) {
          values[e] = ToFloat(std::bit_cast<Values<T, kN>>(loaded[i]).at[e]);
        }
        use(at + i * kStep, values);
      }
    }
  }
};

}  // namespace stagecoach::kernels::cuda
