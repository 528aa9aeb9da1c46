// What the warps and blocks of the decode kernel leave of a segment, and how it is merged.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"

namespace stagecoach::kernels::cuda {

// A row's part of results that are merged: 64 elements of the row, 8 a lane.
struct RowPart {
  float max = MinusInfinity(), sum = 0;
  float2 pairs[4] = {};

  __device__ __forceinline__ void Add(float2 other_max_sum, const float2 (&other)[4]) {
    const float most = fmaxf(max, other_max_sum.x);
    const float base = most == MinusInfinity() ? 0.0f : most;
    const float mine = Exp2(max - base), its = Exp2(other_max_sum.x - base);
    max = most;
    sum = sum * mine + other_max_sum.y * its;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      pairs[t].x = pairs[t].x * mine + other[t].x * its;
      pairs[t].y = pairs[t].y * mine + other[t].y * its;
    }
  }
};

// Results of a tile that a warp left in shared memory, or a block in global memory: of each row the
// maximum and the sum, of each pair of elements a lane its own.
template <int kDim, int kRowTiles>
struct ResultShape {
  static constexpr int kRows = 8 * kRowTiles;
  static constexpr int kDimTiles = kDim / 16;
  static constexpr int kParts = (kDim + 63) / 64;  // of a row
  static constexpr int kItems = kRowTiles * 2 * kParts;
  static constexpr int kPairs = kRowTiles * 2 * kDimTiles;
};

template <int kDim, int kRowTiles>
struct SharedResult : ResultShape<kDim, kRowTiles> {
  using Shape = ResultShape<kDim, kRowTiles>;
  float2 rows[Shape::kRows];
  float2 pairs[Shape::kPairs][kWarpThreads];

  __device__ __forceinline__ float2 Row(int row, int) const { return rows[row]; }
  // A warp without a key leaves no pairs.
  __device__ __forceinline__ float2 Pair(int row, int pair) const {
    return rows[row].y == 0 ? float2{} : pairs[pair][threadIdx.x % kWarpThreads];
  }
};

// Written and read by different multiprocessors, so past L1. A row's maximum and sum are there for
// each of its parts, as different warps write them.
template <int kDim, int kRowTiles>
struct GlobalResult : ResultShape<kDim, kRowTiles> {
  using Shape = ResultShape<kDim, kRowTiles>;
  static constexpr int kFloats = 2 * (Shape::kParts * Shape::kRows + Shape::kPairs * kWarpThreads);
  float* at;

  __device__ __forceinline__ explicit GlobalResult(float* memory) : at(memory) {}
  __device__ __forceinline__ float2 Row(int row, int part) const {
    return LoadFresh(RowAt(row, part));
  }
  __device__ __forceinline__ float2 Pair(int, int pair) const { return LoadFresh(PairAt(pair)); }
  __device__ __forceinline__ float* RowAt(int row, int part) const {
    return at + 2 * (part * Shape::kRows + row);
  }
  // Rows that there are lie together.
  __device__ __forceinline__ float* PairAt(int pair) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    return at + 2 * (Shape::kParts * Shape::kRows + pair * kWarpThreads + lane % 4 * 8 + lane / 4);
  }
};

}  // namespace stagecoach::kernels::cuda
