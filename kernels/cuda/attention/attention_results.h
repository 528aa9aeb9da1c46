// Partial results of a segment from the warps and CTAs of the decode kernel, and their merge.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"

namespace stagecoach::kernels::cuda {

// A lane's part of a row during a merge: 8 of the 64 elements of a row part.
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

// Layout of a tile's partial result, in shared memory (from a warp) or global memory (from a CTA).
// Per row: the maximum and the sum. Per pair of elements: one float2 per lane.
template <int kDim, int kRowTiles>
struct ResultShape {
  static constexpr int kRows = 8 * kRowTiles;
  static constexpr int kDimTiles = kDim / 16;
  static constexpr int kParts = (kDim + 63) / 64;  // 64-element parts per row
  static constexpr int kItems = kRowTiles * 2 * kParts;
  static constexpr int kPairs = kRowTiles * 2 * kDimTiles;
};

template <int kDim, int kRowTiles>
struct SharedResult : ResultShape<kDim, kRowTiles> {
  using Shape = ResultShape<kDim, kRowTiles>;
  float2 rows[Shape::kRows];
  float2 pairs[Shape::kPairs][kWarpThreads];

  __device__ __forceinline__ float2 Row(int row, int) const { return rows[row]; }
  // A warp without keys stores no pairs.
  __device__ __forceinline__ float2 Pair(int row, int pair) const {
    return rows[row].y == 0 ? float2{} : pairs[pair][threadIdx.x % kWarpThreads];
  }
};

// Different SMs write and read this, so loads bypass L1. Every row part has its own copy of the
// row's maximum and sum, because different warps write the parts.
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
  // Lanes are ordered by row first, so that the data of existing rows is contiguous.
  __device__ __forceinline__ float* PairAt(int pair) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    return at + 2 * (Shape::kParts * Shape::kRows + pair * kWarpThreads + lane % 4 * 8 + lane / 4);
  }
};

}  // namespace stagecoach::kernels::cuda
