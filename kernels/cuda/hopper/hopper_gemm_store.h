// Stores wgmma accumulators to y: at once, or while the next tile is multiplied.
#pragma once

#include <cuda.h>

#include <utility>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"

namespace stagecoach::kernels::cuda {

struct HopperGemmParams {
  CUtensorMap x;      // [1, cols / 64, n_rows, 64]; boxes of kSlabs slabs
  CUtensorMap w;      // [1, cols / 64, rows, 64]; if gated: [2, cols / 64, width, 64]
  const float* bias;  // float32 y only, like add_to_y
  void* y;            // [n_rows, n_outputs]
  int32_t n_rows;
  int32_t n_outputs;  // a multiple of 8
  int32_t cols;       // a multiple of 128
  // Rows of x per copy, a multiple of 8. The MMA multiplies stale data in the remaining rows of a
  // tile; those results are dropped.
  int32_t box_rows;
  int32_t stage_bytes, n_stages;
  bool add_to_y;
  Activation activation;  // if gated: kSilu or kGeluTanh
  // FP8: factors of the sums, [n_rows] and [rows of w].
  const float *x_scales = nullptr, *w_scales = nullptr;
};

// The scales of codes for the sums of a lane, which are of rows `row` and `row` + 8. If gated, the
// first half of the sums is of gates, the second one of up projections.
template <bool kGated, int kSums>
struct SumScales {
  static constexpr int kChunks = kSums / 4, kOfHalf = kGated ? kChunks / 2 : kChunks;
  float of_row[2];
  float2 of_columns[kChunks];

  __device__ __forceinline__ void Load(const HopperGemmParams& p, int row, int first_output,
                                       int c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      of_row[half] = row + 8 * half < p.n_rows ? p.x_scales[row + 8 * half] : 0;
    }
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const int column = first_output + j % kOfHalf * 8 + 2 * c;
      of_columns[j] = {};
      if (column < p.n_outputs) {
        of_columns[j] =
            *reinterpret_cast<const float2*>(p.w_scales + j / kOfHalf * p.n_outputs + column);
      }
    }
  }
  __device__ __forceinline__ void Multiply(float (&sums)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float2& scale = of_columns[i / 4];
      sums[i] *= of_row[i / 2 % 2] * (i % 2 == 0 ? scale.x : scale.y);
    }
  }
};

// Exchanges `high` of the lane without is_high with `low` of the lane with is_high. They differ by
// `mask`.
__device__ __forceinline__ void SwapHalves(uint32_t& low, uint32_t& high, int mask, bool is_high) {
  const uint32_t got = __shfl_xor_sync(kAllLanes, is_high ? low : high, mask);
  (is_high ? low : high) = got;
}

// Stores pairs of columns to y. Lane c of a quad has columns 2c and 2c + 1 of each of kChunks
// groups of 8. The lanes first exchange them, so that lane c has all of group c (4 chunks) or half
// of a group (2 chunks) and writes 16 or 8 bytes. A warp collective.
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

// A tile's sums, rounded to y's 16-bit dtype. It can be activated and stored piece by piece while
// the next tile is multiplied, which needs the registers of the sums.
template <typename T, bool kGated, int kSums>
struct HeldTile {
  static constexpr int kChunks = kSums / (kGated ? 8 : 4);  // groups of 8 columns
  static constexpr int kPiecesOfRow = (kChunks + 3) / 4, kPieces = 2 * kPiecesOfRow;

  uint32_t pairs[kSums / 2];  // if gated: gates, then up projections
  int row, output;            // of the first sum
  bool any = false;

  __device__ __forceinline__ void Take(const float (&sums)[kSums], int first_row,
                                       int first_output) {
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) pairs[i] = PackPair<T>(sums[2 * i], sums[2 * i + 1]);
    row = first_row;
    output = first_output;
    any = true;
  }

  // Params: HopperGemmParams, or its members that this uses.
  template <int kPiece, typename Params>
  __device__ __forceinline__ void Store(const Params& p, int c) const {
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

  template <typename Params>
  __device__ __forceinline__ void StoreAll(const Params& p, int c) {
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

// Loads the values of y at the places of `sums`, in rows `row` and `row` + 8.
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

// Stores the accumulators of rows `row` and `row` + 8 to float32 y. there: from LoadTile, if
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
    // Loads several values before the first store. Alternating loads and stores would take one
    // memory round trip each.
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
