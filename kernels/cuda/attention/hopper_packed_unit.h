// State of a warpgroup's 64 rows in HopperPackedPrefill: the current unit in registers, and the
// merged result of the previous units.
#pragma once

#include "kernels/cuda/attention/hopper_packed_tiles.h"
#include "kernels/cuda/hopper/wgmma.h"

namespace stagecoach::kernels::cuda::hopper_packed {

// Whether `mine` is true in any thread of the warpgroup. A warpgroup collective.
__device__ __forceinline__ bool AnyOfWarpgroup(int warpgroup, bool mine) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %2, 0;\n"
      "barrier.cta.red.or.pred q, %1, 128, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(any)
      : "r"(1 + warpgroup), "r"(static_cast<uint32_t>(mine))
      : "memory");
  return __any_sync(kAllLanes, any != 0);  // tells the compiler that it is uniform
}

__device__ __forceinline__ float MaxOfQuad(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

// Merged result of the previous units, for a lane's part of two rows. The elements are in shared
// memory.
struct RowState {
  float* at;  // this thread's elements have a stride of kThreads
  float base[2], sum[2];
  bool has_keys = false;
};

// Stores elements, bases and sums in a PartState.
template <int kDim>
__device__ __forceinline__ void Leave(const float (&out)[kMatrices<kDim> * 32],
                                      const float (&base)[2], const float (&sum)[2],
                                      const PartState<kDim>& to, int32_t row, int32_t n_rows) {
  const int c = Thread() % 4;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (row + 8 * j >= n_rows) continue;
    if (c == 0) *to.BaseAndSum(row + 8 * j) = float2{base[j], sum[j]};
    float* const elements = to.Row(row + 8 * j) + 2 * c;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      *reinterpret_cast<float2*>(elements + 8 * i) =
          float2{out[4 * i + 2 * j], out[4 * i + 2 * j + 1]};
    }
  }
}
// Marks rows that see no key.
template <int kDim>
__device__ __forceinline__ void LeaveNothing(const PartState<kDim>& to, int32_t row,
                                             int32_t n_rows) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (Thread() % 4 != 0 || row + 8 * j >= n_rows) continue;
    *to.BaseAndSum(row + 8 * j) = float2{MinusInfinity(), 0};
  }
}

// State of one unit, for rows g and g + 8 of a warp's 16 rows; g = lane / 4.
template <typename T, int kDim>
struct UnitState {
  static constexpr int kOutputs = kMatrices<kDim> * 64;
  float out[kOutputs / 2];  // [4 i + 2 j + e]: element 8 i + 2 c + e of row g + 8 j
  float base[2];
  float sums[2][2];  // [j][e]: over keys 2 c + e of each 8

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) out[i] = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      base[j] = MinusInfinity();
      sums[j][0] = sums[j][1] = 0;
    }
  }

  // scores[4 i + 2 j + e]: key 8 i + 2 c + e and row g + 8 j. Returns the largest score of row j
  // over the 16-key groups [kFirst, kEnd).
  template <int kFirst, int kEnd>
  __device__ __forceinline__ static float Most(const float (&scores)[kTileKeys / 2], int j) {
    float most = scores[8 * kFirst + 2 * j];
#pragma unroll
    for (int i = 2 * kFirst; i < 2 * kEnd; ++i) {
      most = fmaxf(most, fmaxf(scores[4 * i + 2 * j], scores[4 * i + 2 * j + 1]));
    }
    return MaxOfQuad(most);
  }

  // Turns the scores of the k'th 16 keys into weights. factor: rescales each row's sums.
  template <int kStep>
  __device__ __forceinline__ void Weigh(float to_exponent, const float (&factor)[2],
                                        float (&scores)[kTileKeys / 2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float subtracted = Subtracted(base[j]);
      float* const low = scores + 8 * kStep + 2 * j;
      float* const high = low + 4;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        low[e] = Exp2(fmaf(low[e], to_exponent, -subtracted));
        high[e] = Exp2(fmaf(high[e], to_exponent, -subtracted));
        sums[j][e] = fmaf(sums[j][e], factor[j], low[e] + high[e]);
      }
    }
  }
  template <int kStep>
  __device__ __forceinline__ static void Pack(const float (&weights)[kTileKeys / 2],
                                              uint32_t (&packed)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      packed[i] = PackPair<T>(weights[8 * kStep + 2 * i], weights[8 * kStep + 2 * i + 1]);
    }
  }

  // Moves bases where needed and rescales the outputs. Weigh rescales the sums.
  template <int kStep>
  __device__ __forceinline__ void Move(float to_exponent, const float (&scores)[kTileKeys / 2],
                                       float (&factor)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float most = RoundedProduct(Most<kStep, kStep + 1>(scores, j), to_exponent);
      factor[j] = 1;
      if (IsAboveBase(most, base[j])) {
        factor[j] = Exp2(base[j] - most);
        base[j] = most;
      }
    }
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) out[i] *= factor[i / 2 % 2];
  }
  template <int kStep>
  __device__ __forceinline__ void MoveAndAdd(float to_exponent, float (&scores)[kTileKeys / 2],
                                             uint64_t values) {
    float factor[2];
    Move<kStep>(to_exponent, scores, factor);
    Weigh<kStep>(to_exponent, factor, scores);
    uint32_t weights[4];
    Pack<kStep>(scores, weights);
    FenceAccumulators(out);
    BeginWgmma();
    WgmmaRowsFromRegisters<T, kOutputs>(out, weights, values + kStep * kWgmmaRowsStep);
    CommitWgmma();
    WaitForWgmma<0>();
    FenceAccumulators(out);
  }

  // Turns the scores of 64 keys into weights while the MMAs of the previous tile may still run.
  // is_first: the first tile of the unit that the warpgroup sees. If a base moves within the tile,
  // this function also adds the values, 16 keys at a time, and sets all weights to zero.
  __device__ __forceinline__ void WeighTile(int warpgroup, bool is_first, float to_exponent,
                                            float (&scores)[kTileKeys / 2], uint64_t values) {
    if (is_first) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        base[j] = RoundedProduct(Most<0, 1>(scores, j), to_exponent);
      }
    }
    bool moves = false;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      moves |= IsAboveBase(RoundedProduct(Most<0, 4>(scores, j), to_exponent), base[j]);
    }
    if (AnyOfWarpgroup(warpgroup, moves)) {
      WaitForWgmma<0>();
      FenceAccumulators(out);
      MoveAndAdd<0>(to_exponent, scores, values);
      MoveAndAdd<1>(to_exponent, scores, values);
      MoveAndAdd<2>(to_exponent, scores, values);
      MoveAndAdd<3>(to_exponent, scores, values);
#pragma unroll
      for (float& weight : scores) weight = 0;
    } else {
      const float factor[2] = {1, 1};
      Weigh<0>(to_exponent, factor, scores);
      Weigh<1>(to_exponent, factor, scores);
      Weigh<2>(to_exponent, factor, scores);
      Weigh<3>(to_exponent, factor, scores);
    }
  }

  __device__ __forceinline__ void BeginAdd(uint64_t values, const uint32_t (&weights)[4][4]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      WgmmaRowsFromRegisters<T, kOutputs>(out, weights[step], values + step * kWgmmaRowsStep);
    }
    CommitWgmma();
  }

  // Call after the last key: the sum over the keys of all lanes.
  __device__ __forceinline__ float Sum(int j) const {
    float sum = sums[j][0] + sums[j][1];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    return sum + __shfl_xor_sync(kAllLanes, sum, 2);
  }

  // Ends the unit: stores this lane's part of rows `row` and `row` + 8 of a tile, if they are below
  // n_rows.
  __device__ __forceinline__ void Leave(const PartState<kDim>& to, int32_t row,
                                        int32_t n_rows) const {
    const float all[2] = {Sum(0), Sum(1)};
    hopper_packed::Leave(out, base, all, to, row, n_rows);
  }

  // Ends the unit: merges it into the result of the previous units.
  __device__ __forceinline__ void EndInto(RowState& state) {
    MergeFactors factors;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float sum = Sum(j);
      if (state.has_keys) {
        state.base[j] = factors.Set(j, state.base[j], base[j]);
        state.sum[j] = factors.Merged(j, state.sum[j], sum);
      } else {
        state.base[j] = base[j];
        state.sum[j] = sum;
      }
    }
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) {
      float& to = state.at[i * kThreads];
      to = state.has_keys ? factors.Merged(i / 2 % 2, to, out[i]) : out[i];
    }
    state.has_keys = true;
    Clear();
  }
};

}  // namespace stagecoach::kernels::cuda::hopper_packed
