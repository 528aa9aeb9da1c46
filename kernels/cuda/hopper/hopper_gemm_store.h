// How sums in registers, as wgmma leaves them, get to y: at once, or while the next tile is
// multiplied.
#pragma once

#include <cuda.h>

#include <utility>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"

namespace stagecoach::kernels::cuda {

struct HopperGemmParams {
  CUtensorMap x;      // [1, cols / 64, n_rows, 64]; boxes of kSlabs slabs
  CUtensorMap w;      // [1, cols / 64, rows, 64], or where gated [2, cols / 64, width, 64]
  const float* bias;  // only with y in float32, as add_to_y
  void* y;            // [n_rows, n_outputs]
  int32_t n_rows;
  int32_t n_outputs;  // a multiple of 8
  int32_t cols;       // a multiple of 128
  int32_t box_rows;   // of x that a copy brings, a multiple of 8; what is multiplied of others
                      // is what lies there, and goes nowhere
  int32_t stage_bytes, n_stages;
  bool add_to_y;
  Activation activation;  // where gated: kSilu or kGeluTanh
};

// Swaps `high` of a lane with `low` of the one that `mask` leads to.
__device__ __forceinline__ void SwapHalves(uint32_t& low, uint32_t& high, int mask, bool is_high) {
  const uint32_t got = __shfl_xor_sync(kAllLanes, is_high ? low : high, mask);
  (is_high ? low : high) = got;
}

// The pairs of columns that a quad's lane c has, the c'th of each 8, to y: first from kChunks times
// 8 columns to all of the c'th 8, or half of it, so that a lane writes 16 or 8 bytes. A warp's
// collective.
template <int kChunks>
__device__ __forceinline__ void StorePairs(uint32_t (&v)[kChunks], uint16_t* y, int c,
                                           int n_columns) {
  static_assert(kChunks == 4 || kChunks == 2);
  SwapHalves(v[0], v[1], 1, c % 2 == 1);
  if constexpr (kChunks == 4) {
    SwapHalves(v[2], v[3], 1, c % 2 == 1);
    SwapHalves(v[0], v[2], 2, c / 2 == 1);
    SwapHalves(v[1], v[3], 2, c / 2 == 1);
    const int column = 8 * c;
    if (column < n_columns) {
      *reinterpret_cast<uint4*>(y + column) = make_uint4(v[0], v[1], v[2], v[3]);
    }
  } else {
    const int column = 8 * (c % 2);
    if (column < n_columns) {
      *reinterpret_cast<uint2*>(y + column + c / 2 * 4) = make_uint2(v[0], v[1]);
    }
  }
}

// A tile's sums, rounded to y's 16 bits. They can be activated and stored in pieces while the next
// tile is multiplied, which takes the registers of the sums.
template <typename T, bool kGated, int kSums>
struct HeldTile {
  static constexpr int kChunks = kSums / (kGated ? 8 : 4);  // of 8 columns
  static constexpr int kPiecesOfRow = (kChunks + 3) / 4, kPieces = 2 * kPiecesOfRow;

  uint32_t pairs[kSums / 2];  // where gated: gates, then what they are for
  int row, output;            // of the first
  bool any = false;

  __device__ __forceinline__ void Take(const float (&sums)[kSums], int first_row,
                                       int first_output) {
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) pairs[i] = PackPair<T>(sums[2 * i], sums[2 * i + 1]);
    row = first_row;
    output = first_output;
    any = true;
  }

  template <int kPiece>
  __device__ __forceinline__ void Store(const HopperGemmParams& p, int c) const {
    constexpr int kHalf = kPiece / kPiecesOfRow, kFirst = kPiece % kPiecesOfRow * 4;
    constexpr int kN = kChunks - kFirst < 4 ? kChunks - kFirst : 4;
    uint32_t values[kN];
    if constexpr (!kGated) {
#pragma unroll
      for (int i = 0; i < kN; ++i) values[i] = pairs[2 * (kFirst + i) + kHalf];
    } else if (p.activation == Activation::kSilu) {
      Activate<Activation::kSilu, kHalf, kFirst>(values);
    } else {
      Activate<Activation::kGeluTanh, kHalf, kFirst>(values);
    }
    const int y_row = row + 8 * kHalf, column = output + 8 * kFirst;
    StorePairs(values, static_cast<uint16_t*>(p.y) + int64_t{y_row} * p.n_outputs + column, c,
               y_row < p.n_rows ? p.n_outputs - column : 0);
  }

  __device__ __forceinline__ void StoreAll(const HopperGemmParams& p, int c) {
    [&]<int... kPiece>(std::integer_sequence<int, kPiece...>) __attribute__((always_inline)) {
      (Store<kPiece>(p, c), ...);
    }(std::make_integer_sequence<int, kPieces>{});
    any = false;
  }

 private:
  __device__ __forceinline__ static float2 Floats(uint32_t pair) {
    return make_float2(ToFloat(T{static_cast<uint16_t>(pair)}),
                       ToFloat(T{static_cast<uint16_t>(pair >> 16)}));
  }
  template <Activation kKind, int kHalf, int kFirst, int kN>
  __device__ __forceinline__ void Activate(uint32_t (&values)[kN]) const {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const float2 gate = Floats(pairs[2 * (kFirst + i) + kHalf]);
      const float2 up = Floats(pairs[2 * (kChunks + kFirst + i) + kHalf]);
      values[i] = PackPair<T>(Activated<kKind, /*kExact=*/false>(gate.x) * up.x,
                              Activated<kKind, /*kExact=*/false>(gate.y) * up.y);
    }
  }
};

// What lies in y where `sums` of rows `row` and `row` + 8 go to.
template <int kSums>
__device__ __forceinline__ void LoadTile(const HopperGemmParams& p, float (&there)[kSums], int row,
                                         int first_output, int c) {
#pragma unroll
  for (int i = 0; i < kSums; i += 2) {
    const int y_row = row + i / 2 % 2 * 8, column = first_output + i / 4 * 8 + 2 * c;
    float2 value{};
    if (y_row < p.n_rows && column < p.n_outputs) {
      value = *reinterpret_cast<const float2*>(static_cast<const float*>(p.y) +
                                               int64_t{y_row} * p.n_outputs + column);
    }
    there[i] = value.x;
    there[i + 1] = value.y;
  }
}

// The accumulators of rows `row` and `row` + 8 go to y, in float32. there: of LoadTile, where
// kLoaded and p.add_to_y.
template <bool kLoaded, int kSums>
__device__ __forceinline__ void StoreTile(const HopperGemmParams& p, const float (&sums)[kSums],
                                          const float (&there)[kSums], int row, int first_output,
                                          int c) {
  constexpr int kChunks = kSums / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int y_row = row + 8 * half;
    const int n_columns = y_row < p.n_rows ? p.n_outputs - first_output : 0;
    float* const y = static_cast<float*>(p.y) + int64_t{y_row} * p.n_outputs + first_output;
    // Several are read before the first is written: one after another would take a trip to memory
    // each.
    constexpr int kAtOnce = kChunks < 8 ? kChunks : kChunks < 32 ? 8 : 4;
#pragma unroll
    for (int first = 0; first < kChunks; first += kAtOnce) {
      float2 before[kAtOnce] = {}, bias[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int j = first + i, column = 8 * j + 2 * c;
        if (j >= kChunks || column >= n_columns) continue;
        if (p.bias != nullptr) {
          bias[i] = {p.bias[first_output + column], p.bias[first_output + column + 1]};
        }
        if constexpr (kLoaded) {
          before[i] = {there[4 * j + 2 * half], there[4 * j + 2 * half + 1]};
        } else if (p.add_to_y) {
          before[i] = *reinterpret_cast<const float2*>(y + column);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int j = first + i, column = 8 * j + 2 * c;
        if (j >= kChunks || column >= n_columns) continue;
        float2 sum = {sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]};
        if (p.bias != nullptr) {
          sum.x += bias[i].x;
          sum.y += bias[i].y;
        }
        if (p.add_to_y) {
          sum.x += before[i].x;
          sum.y += before[i].y;
        }
        *reinterpret_cast<float2*>(y + column) = sum;
      }
    }
  }
}

}  // namespace stagecoach::kernels::cuda
