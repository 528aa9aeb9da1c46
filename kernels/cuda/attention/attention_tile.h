// Attention of one warp: a tile of 8 * kRowTiles query rows against 16 keys at a time, in
// registers, on the tensor cores. Decode and prefill share it and differ only in where they load
// data from. So a row's result does not depend on which of them computed it.
//
// Sources: T. Dao, D. Haziza, F. Massa, G. Sizov, "Flash-Decoding for long-context inference",
// 2023; M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018. Scores are
// computed transposed (keys by rows), so that the few rows of a decode are the narrow side of the
// MMA tile. With g = lane / 4 and c = lane % 4, a lane has the scores of keys g and g + 8 for rows
// 2c and 2c + 1 of each row tile.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_rows.h"
#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float MinusInfinity() { return __uint_as_float(0xff800000u); }

__device__ __forceinline__ float Exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// Maps a product of q and k to the exponent of its weight, in base 2. Operations that round are
// written explicitly here, in the parts of AttentionTile::WeighMasked and in MergeFactors. So a
// compiler cannot round differently in different kernels.
struct ScoreScale {
  float factor;   // scale * log2(e), or with a cap 2 * scale / cap * log2(e)
  float cap = 0;  // cap * log2(e); 0: off

  __host__ __device__ static ScoreScale Of(float scale, float softcap) {
    return softcap > 0 ? ScoreScale{2 * scale / softcap * kLog2E, softcap * kLog2E}
                       : ScoreScale{scale * kLog2E, 0};
  }
  // Returns the value that FactorOfCapped() scales: the product, or with a cap the final exponent.
  __device__ __forceinline__ float Capped(float product) const {
    // cap * tanh(x) with tanh(x) = 1 - 2 / (e^2x + 1)
    return cap == 0 ? product : cap - __fdividef(2 * cap, Exp2(product * factor) + 1);
  }
  __device__ __forceinline__ float FactorOfCapped() const { return cap == 0 ? factor : 1.0f; }
};

// The weights of a row are relative to its base. The base is the largest exponent of the first 16
// keys of a unit that the row sees. Later keys move the base only if they exceed it by more than
// this slack. Most do not, and then nothing needs rescaling.
inline constexpr float kBaseSlack = 8;

__device__ __forceinline__ bool IsAboveBase(float exponent, float base) {
  return exponent > base + kBaseSlack;
}
// The value to subtract from exponents. A row without keys has no base yet.
__device__ __forceinline__ float Subtracted(float base) {
  return base == MinusInfinity() ? 0.0f : base;
}

// A sink per query head: the score of one more key, which has no value and which each row sees.
struct Sinks {
  const float* scores = nullptr;  // [n_heads]; null: the model has none

  // In base 2; -inf without sinks.
  __device__ __forceinline__ float ExponentOf(int32_t head) const {
    return scores != nullptr ? RoundedProduct(scores[head], kLog2E) : MinusInfinity();
  }
};
// The factor of a row's elements: `sum` is that of the weights relative to `base`, without the
// sink's. No sink changes no bit.
__device__ __forceinline__ float InverseOfSum(float base, float sum, float sink_exponent) {
  return 1.0f / (sum + Exp2(sink_exponent - base));
}

// Rescaling factors for merging two states, for the two rows of a lane.
struct MergeFactors {
  float earlier[2], later[2];

  // Sets the factors for row j and returns the common base.
  __device__ __forceinline__ float Set(int j, float earlier_base, float later_base) {
    const float most = fmaxf(earlier_base, later_base), subtracted = Subtracted(most);
    earlier[j] = Exp2(earlier_base - subtracted);
    later[j] = Exp2(later_base - subtracted);
    return most;
  }
  __device__ __forceinline__ float Merged(int j, float earlier_value, float later_value) const {
    return fmaf(earlier_value, earlier[j], later_value * later[j]);
  }
};

// Selects one of n parts of the head in a state that several warps hold.
struct StatePart {
  int index = 0, n = 1;
};

template <typename T, int kDim, int kRowTiles>
struct AttentionTile {
  static constexpr int kRows = 8 * kRowTiles;
  static constexpr int kDimTiles = kDim / 16;

  FactorRow<kDim> q[kRowTiles];  // row g of each row tile
  // For rows 2c and 2c + 1 of each row tile:
  float out[kRowTiles][kDimTiles][4];  // [.][t][2 e + j]: element ValueElement(t) + e of row 2c + j
  float base[kRowTiles][2];            // base of the weights; -inf: no key yet
  float sum[kRowTiles][2];             // sum of the weights, over this lane's keys

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int t = 0; t < kDimTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][t][i] = 0;
      }
      base[n][0] = base[n][1] = MinusInfinity();
      sum[n][0] = sum[n][1] = 0;
    }
  }

  // scores[n][2 h + j]: key g + 8 h and row 2c + j of row tile n. Keys: KeyBlock or the same
  // interface.
  template <typename Keys>
  __device__ __forceinline__ void Scores(const Keys& keys, float (&scores)[kRowTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
    }
#pragma unroll
    for (int chunk = 0; chunk < kDim / 32; ++chunk) {
      const uint4 low = keys.Wide(0, chunk), high = keys.Wide(1, chunk);
      ScoreStep(2 * chunk, {low.x, high.x, low.y, high.y}, scores);
      ScoreStep(2 * chunk + 1, {low.z, high.z, low.w, high.w}, scores);
    }
    if constexpr (kDim % 32 != 0) {
      const uint2 low = keys.Last(0), high = keys.Last(1);
      ScoreStep(kDim / 16 - 1, {low.x, high.x, low.y, high.y}, scores);
    }
  }

  // visible(h, n, j): whether row 2c + j of tile n sees key g + 8 h.
  // weights[n] returns the block's weights, as the B operand of AddValues.
  template <typename IsVisible>
  __device__ __forceinline__ void Weigh(const ScoreScale& scale, bool all_visible,
                                        const IsVisible& visible, float (&scores)[kRowTiles][4],
                                        uint32_t (&weights)[kRowTiles][2]) {
    float most[kRowTiles][2];
    Mask(scale, all_visible, visible, scores, most);
    WeighMasked(scale, most, scores, weights);
  }

  // First half of Weigh. most: the largest exponent in the block, per row.
  template <typename IsVisible>
  __device__ __forceinline__ static void Mask(const ScoreScale& scale, bool all_visible,
                                              const IsVisible& visible,
                                              float (&scores)[kRowTiles][4],
                                              float (&most)[kRowTiles][2]) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = scale.Capped(scores[n][i]);
        if (!all_visible && !visible(i / 2, n, i % 2)) scores[n][i] = MinusInfinity();
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float largest = fmaxf(scores[n][j], scores[n][j + 2]);
#pragma unroll
        for (int mask = 4; mask < kWarpThreads; mask *= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, mask));
        }
        most[n][j] = RoundedProduct(largest, scale.FactorOfCapped());
      }
    }
  }

  // Second half of Weigh.
  __device__ __forceinline__ void WeighMasked(const ScoreScale& scale,
                                              const float (&most)[kRowTiles][2],
                                              float (&scores)[kRowTiles][4],
                                              uint32_t (&weights)[kRowTiles][2]) {
    float factor[kRowTiles][2], added[kRowTiles][2];
    const bool moved = Rebase(most, base, factor);
    ToWeights(scale, base, scores, weights, added);
    AddToSums(factor, added);
    if (__any_sync(kAllLanes, moved)) Multiply(factor);
  }

  // The steps of WeighMasked. Raises this lane's bases to `most` where needed and returns whether
  // one moved. `factor` rescales what was accumulated so far.
  __device__ __forceinline__ static bool Rebase(const float (&most)[kRowTiles][2],
                                                float (&base)[kRowTiles][2],
                                                float (&factor)[kRowTiles][2]) {
    bool moved = false;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        factor[n][j] = 1;
        if (!IsAboveBase(most[n][j], base[n][j])) continue;
        factor[n][j] = Exp2(base[n][j] - most[n][j]);
        base[n][j] = most[n][j];
        moved = true;
      }
    }
    return moved;
  }
  // added: sums of this lane's weights.
  __device__ __forceinline__ static void ToWeights(const ScoreScale& scale,
                                                   const float (&base)[kRowTiles][2],
                                                   float (&scores)[kRowTiles][4],
                                                   uint32_t (&weights)[kRowTiles][2],
                                                   float (&added)[kRowTiles][2]) {
    const float to_exponent = scale.FactorOfCapped();
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float subtracted = Subtracted(base[n][j]);
        scores[n][j] = Exp2(fmaf(scores[n][j], to_exponent, -subtracted));
        scores[n][j + 2] = Exp2(fmaf(scores[n][j + 2], to_exponent, -subtracted));
        added[n][j] = scores[n][j] + scores[n][j + 2];
      }
      weights[n][0] = Transpose8x8(PackPair<T>(scores[n][0], scores[n][1]));
      weights[n][1] = Transpose8x8(PackPair<T>(scores[n][2], scores[n][3]));
    }
  }
  __device__ __forceinline__ void AddToSums(const float (&factor)[kRowTiles][2],
                                            const float (&added)[kRowTiles][2]) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) sum[n][j] = fmaf(sum[n][j], factor[n][j], added[n][j]);
    }
  }
  __device__ __forceinline__ void Multiply(const float (&factor)[kRowTiles][2]) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int t = 0; t < kDimTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][t][i] *= factor[n][i % 2];
      }
    }
  }

  // Values: ValueBlock or the same interface.
  template <typename Values>
  __device__ __forceinline__ void AddValues(const Values& values,
                                            const uint32_t (&weights)[kRowTiles][2]) {
#pragma unroll
    for (int part = 0; part < kDim / 64; ++part) {
      const uint4 v[4] = {values.Wide(0, part), values.Wide(1, part), values.Wide(2, part),
                          values.Wide(3, part)};
      ValueStep(4 * part, v[0].x, v[1].x, v[2].x, v[3].x, weights);
      ValueStep(4 * part + 1, v[0].y, v[1].y, v[2].y, v[3].y, weights);
      ValueStep(4 * part + 2, v[0].z, v[1].z, v[2].z, v[3].z, weights);
      ValueStep(4 * part + 3, v[0].w, v[1].w, v[2].w, v[3].w, weights);
    }
    if constexpr (kDim % 64 == 32) {
      const uint2 v[4] = {values.Last8(0), values.Last8(1), values.Last8(2), values.Last8(3)};
      ValueStep(kDimTiles - 2, v[0].x, v[1].x, v[2].x, v[3].x, weights);
      ValueStep(kDimTiles - 1, v[0].y, v[1].y, v[2].y, v[3].y, weights);
    } else if constexpr (kDim % 64 == 16) {
      ValueStep(kDimTiles - 1, values.Last4(0), values.Last4(1), values.Last4(2), values.Last4(3),
                weights);
    }
  }

  // Call after the last block: every lane gets the sums over all keys.
  __device__ __forceinline__ void SumLanes() {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int mask = 4; mask < kWarpThreads; mask *= 2) {
          sum[n][j] += __shfl_xor_sync(kAllLanes, sum[n][j], mask);
        }
      }
    }
  }

  // A state in memory, for tiles that several warps compute: kStateFloats values per lane, with the
  // 32 lanes of a value side by side.
  static constexpr int kFloatsOfRows = 4;  // bases and sums per row tile
  static constexpr int kStateFloats = kRowTiles * (kDimTiles * 4 + kFloatsOfRows);

  __device__ __forceinline__ void Save(float* to, const StatePart& part = {}) {
    to += threadIdx.x % kWarpThreads;
    int next = 0;
    ForEachPair([&](float& value, MergeFactors*, bool, int) {
      to[StatePlace(next++, part) * kWarpThreads] = value;
    });
  }
  __device__ __forceinline__ void Load(const float* from) {
    from += threadIdx.x % kWarpThreads;
    int next = 0;
    ForEachPair(
        [&](float& value, MergeFactors*, bool, int) { value = from[next++ * kWarpThreads]; });
  }

  // Replaces this state by the merge of n states in memory, in ascending key order: state(i), i in
  // [0, n). Their sums cover the keys of all lanes. If registers suffice, the next states load
  // during the merge.
  template <typename State>
  __device__ __forceinline__ void MergeAll(int32_t n, const State& state,
                                           const StatePart& part = {}) {
    constexpr int kAtOnce = kStateFloats > 40 ? 1 : 40 / kStateFloats;
    const auto load = [&](int32_t first, float(&to)[kAtOnce][kStateFloats]) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < n) LoadState(state(first + i), part, to[i]);
      }
    };
    Clear();
    float later[kAtOnce][kStateFloats] = {}, next[kAtOnce][kStateFloats] = {};
    if constexpr (kStateFloats <= 80) load(0, next);
    for (int32_t first = 0; first < n; first += kAtOnce) {
      if constexpr (kStateFloats <= 80) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
          for (int v = 0; v < kStateFloats; ++v) later[i][v] = next[i][v];
        }
        load(first + kAtOnce, next);
      } else {
        load(first, later);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < n) MergeLater(later[i]);
      }
    }
  }

  // Merges this state into the one in memory, which has the earlier keys.
  __device__ __forceinline__ void MergeInto(float* earlier) {
    earlier += threadIdx.x % kWarpThreads;
    int next = 0;
    ForEachPair([&](float& later_value, MergeFactors* factors, bool is_base, int j) {
      float& value = earlier[next++ * kWarpThreads];
      value = Merged(value, later_value, factors, is_base, j);
    });
  }

  // to(row) returns the address of the row's kDim elements, or null to skip it. sink_of(row)
  // returns the exponent of the row's sink. REQUIRES: SumLanes().
  template <typename Destination, typename SinkOf>
  __device__ __forceinline__ void Write(const Destination& to, const SinkOf& sink_of) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        T* const row = to(8 * n + 2 * c + j);
        if (row == nullptr) continue;
        const float inverse = InverseOfSum(base[n][j], sum[n][j], sink_of(8 * n + 2 * c + j));
        uint32_t pairs[kDimTiles];
#pragma unroll
        for (int t = 0; t < kDimTiles; ++t) {
          pairs[t] = PackPair<T>(out[n][t][j] * inverse, out[n][t][2 + j] * inverse);
        }
#pragma unroll
        for (int part = 0; part < kDim / 64; ++part) {
          *reinterpret_cast<uint4*>(row + 64 * part + 8 * g) = make_uint4(
              pairs[4 * part], pairs[4 * part + 1], pairs[4 * part + 2], pairs[4 * part + 3]);
        }
#pragma unroll
        for (int t = kDim / 64 * 4; t < kDimTiles; ++t) {
          *reinterpret_cast<uint32_t*>(row + ValueElement<kDim>(t, g)) = pairs[t];
        }
      }
    }
  }

  // Stores into a PartState. row_of(row) returns the row in the state, or -1 to skip it. REQUIRES:
  // SumLanes().
  template <typename RowOf, typename State>
  __device__ __forceinline__ void Leave(const RowOf& row_of, const State& to) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int32_t row = row_of(8 * n + 2 * c + j);
        if (row < 0) continue;
        if (g == 0) *to.BaseAndSum(row) = float2{base[n][j], sum[n][j]};
        float* const elements = to.Row(row);
#pragma unroll
        for (int t = 0; t < kDimTiles; ++t) {
          *reinterpret_cast<float2*>(elements + ValueElement<kDim>(t, g)) =
              float2{out[n][t][j], out[n][t][2 + j]};
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void ScoreStep(int step, const uint32_t (&a)[4],
                                            float (&scores)[kRowTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      Mma<T>(scores[n], a, q[n].at[2 * step], q[n].at[2 * step + 1]);
    }
  }

  __device__ __forceinline__ void ValueStep(int t, uint32_t v0, uint32_t v1, uint32_t v2,
                                            uint32_t v3, const uint32_t (&weights)[kRowTiles][2]) {
    const uint32_t a[4] = {__byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                           __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632)};
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) Mma<T>(out[n][t], a, weights[n][0], weights[n][1]);
  }

  // Index in the whole state of the part's place'th value in ForEachPair order.
  __device__ __forceinline__ static int StatePlace(int place, const StatePart& part) {
    constexpr int kOfTile = kStateFloats / kRowTiles, kElements = kDimTiles * 4;
    const int n = place / kOfTile, in_tile = place % kOfTile;
    return n * (kFloatsOfRows + part.n * kElements) + in_tile +
           (in_tile < kFloatsOfRows ? 0 : part.index * kElements);
  }

  __device__ __forceinline__ static void LoadState(const float* from, const StatePart& part,
                                                   float (&values)[kStateFloats]) {
    from += threadIdx.x % kWarpThreads;
#pragma unroll
    for (int v = 0; v < kStateFloats; ++v) {
      values[v] = from[StatePlace(v, part) * kWarpThreads];
    }
  }

  // Merges `later` into this state, which has the earlier keys.
  __device__ __forceinline__ void MergeLater(const float (&later)[kStateFloats]) {
    int next = 0;
    ForEachPair([&](float& earlier_value, MergeFactors* factors, bool is_base, int j) {
      earlier_value = Merged(earlier_value, later[next++], factors, is_base, j);
    });
  }

  // Visits a state's values in order: per row tile the bases and sums, then the elements.
  template <typename Each>
  __device__ __forceinline__ void ForEachPair(const Each& each) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      MergeFactors factors;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        each(base[n][j], &factors, true, j);
        each(sum[n][j], &factors, false, j);
      }
#pragma unroll
      for (int t = 0; t < kDimTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) each(out[n][t][i], &factors, false, i % 2);
      }
    }
  }
  __device__ __forceinline__ static float Merged(float earlier, float later, MergeFactors* factors,
                                                 bool is_base, int j) {
    return is_base ? factors->Set(j, earlier, later) : factors->Merged(j, earlier, later);
  }
};

}  // namespace stagecoach::kernels::cuda
