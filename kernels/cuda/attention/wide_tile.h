// A CTA's tile of query rows against 32 keys at a time, for heads of more than 256 numbers. The
// warps share the keys in shared memory: kRowGroups of them side by side have 16 rows each, and the
// kColGroups warps of a row group have a part of the keys for the scores, then a part of the
// value's numbers for the sums. They exchange maxima, sums and weights through shared memory.
//
// A row's result does not depend on its place in a tile, nor on kRowGroups: products run over the
// head's numbers and over the keys in one order, and sums of weights are added in groups of 8 keys.
// Source of the online softmax: as for AttentionTile.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"

namespace stagecoach::kernels::cuda {

// kKeyDim > kValueDim: latents, whose first kValueDim numbers are the values.
template <typename T, int kKeyDim, int kValueDim, int kRowGroups>
struct WideTile {
  static constexpr bool kHasValues = kKeyDim == kValueDim;
  static constexpr int kRows = 16 * kRowGroups;
  static constexpr int kWarps = kRowGroups == 1 ? 4 : 8;
  static constexpr int kThreads = kWarps * kWarpThreads;
  static constexpr int kColGroups = kWarps / kRowGroups;
  static constexpr int kKeys = 32;
  static constexpr int kKeyGroups = kKeys / 8;  // of 8 keys
  static constexpr int kGroupsOfWarp = kKeyGroups / kColGroups;
  static constexpr int kColTiles = kValueDim / kColGroups / 8;  // of 8 numbers, per warp
  static constexpr int kRowBytes = kKeyDim * 2;
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kWeightBytes = kKeys * 2;         // of a row of weights
  static constexpr int kStageBytes = kKeys * kRowBytes;  // of a stage
  static_assert(kPieces % 8 == 0 && kColTiles % 8 == 0);

  // Shared memory: queries, two stages (of latents; else one of keys, one of values), weights, then
  // [kRows][kKeyGroups] maxima and sums.
  static constexpr size_t kKeysAt = size_t{kRows} * kRowBytes;
  static constexpr size_t kWeightsAt = kKeysAt + 2 * kStageBytes;
  static constexpr size_t kMaximaAt = kWeightsAt + size_t{kRows} * kWeightBytes;
  static constexpr size_t kSumsAt = kMaximaAt + size_t{kRows} * kKeyGroups * sizeof(float);
  static constexpr size_t kSharedBytes = kSumsAt + size_t{kRows} * kKeyGroups * sizeof(float);

  unsigned char* shared;
  float out[kColTiles][4];  // [t][2 j + e]: number Col(t) + e of row Row(j)
  float base[2], sum[2];    // of row Row(j), as in AttentionTile; sum over all keys

  __device__ __forceinline__ static int Lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  __device__ __forceinline__ static int Warp() {
    return static_cast<int>(threadIdx.x) / kWarpThreads;
  }
  __device__ __forceinline__ static int RowGroup() { return Warp() / kColGroups; }
  __device__ __forceinline__ static int ColGroup() { return Warp() % kColGroups; }
  // Row of the tile, for j in {0, 1}.
  __device__ __forceinline__ static int Row(int j) { return 16 * RowGroup() + 8 * j + Lane() / 4; }
  __device__ __forceinline__ static int Col(int t) {
    return (ColGroup() * kColTiles + t) * 8 + Lane() % 4 * 2;
  }
  // Key of this lane's scores: e in {0, 1}.
  __device__ __forceinline__ static int Key(int group, int e) {
    return (ColGroup() * kGroupsOfWarp + group) * 8 + Lane() % 4 * 2 + e;
  }

  // XOR swizzles: eight rows that are read together do not share a bank.
  __device__ __forceinline__ static int RowPiece(int row, int piece) {
    return row * kRowBytes + ((piece ^ (row % 8)) * 16);
  }
  // The place of piece q + piece of a row, if `place` is that of piece q, and q and piece share no
  // bits: one instruction where `piece` is known.
  __device__ __forceinline__ static int Moved(int place, int piece) {
    return (place ^ (piece % 8 * 16)) + piece / 8 * 128;
  }
  __device__ __forceinline__ static int WeightPiece(int row, int piece) {
    return row * kWeightBytes + ((piece ^ (row / 2 % 4)) * 16);
  }
  __device__ __forceinline__ unsigned char* Queries() const { return shared; }
  __device__ __forceinline__ unsigned char* Stage(int stage) const {
    return shared + kKeysAt + stage * kStageBytes;
  }
  __device__ __forceinline__ float* Maxima() const {
    return reinterpret_cast<float*>(shared + kMaximaAt);
  }
  __device__ __forceinline__ float* Sums() const {
    return reinterpret_cast<float*>(shared + kSumsAt);
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int t = 0; t < kColTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[t][i] = 0;
    }
    base[0] = base[1] = MinusInfinity();
    sum[0] = sum[1] = 0;
  }

  // One tile of keys and values, in these stages. sees(j, key): whether row Row(j) sees a key of
  // the tile. All warps call it. The caller's barrier before made the keys visible. keys_read()
  // runs when no warp reads them any more, await_values() before the barrier that makes values
  // visible. The caller's next barrier lets the values go.
  template <typename Sees, typename KeysRead, typename AwaitValues>
  __device__ __forceinline__ void Step(int keys, int values, const ScoreScale& scale,
                                       const Sees& sees, const KeysRead& keys_read,
                                       const AwaitValues& await_values) {
    float scores[kGroupsOfWarp][4];
    Scores(Stage(keys), scores);
    MaskAndShare(sees, scores);
    __syncthreads();
    keys_read();
    float factor[2];
    const bool moved = Rebase(scale, factor);
    Weigh(scale, scores);
    await_values();
    __syncthreads();
    AddToSums(factor);
    if (__any_sync(kAllLanes, moved)) Multiply(factor);
    AddValues(Stage(values));
  }

 private:
  // scores[n][2 j + e]: row Row(j) and key Key(n, e). Two chains of MMAs hide their latency.
  __device__ __forceinline__ void Scores(const unsigned char* keys,
                                         float (&scores)[kGroupsOfWarp][4]) const {
    float chains[2][kGroupsOfWarp][4] = {};
    const int m = Lane() / 8, r = Lane() % 8;
    const int query = RowPiece(16 * RowGroup() + m % 2 * 8 + r, m / 2);
    const int key = RowPiece(ColGroup() * kGroupsOfWarp * 8 + r, m);
#pragma unroll
    for (int chunk = 0; chunk < kKeyDim / 32; ++chunk) {
      uint32_t a[2][4];
      LoadMatrices(a[0], Queries() + Moved(query, 4 * chunk));
      LoadMatrices(a[1], Queries() + Moved(query, 4 * chunk + 2));
#pragma unroll
      for (int n = 0; n < kGroupsOfWarp; ++n) {
        uint32_t b[4];
        LoadMatrices(b, keys + Moved(key, 4 * chunk) + n * 8 * kRowBytes);
        Mma<T>(chains[0][n], a[0], b[0], b[1]);
        Mma<T>(chains[1][n], a[1], b[2], b[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < kGroupsOfWarp; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = chains[0][n][i] + chains[1][n][i];
    }
  }

  // Unseen keys become -inf. Shares the largest score of each row among this warp's keys.
  template <typename Sees>
  __device__ __forceinline__ void MaskAndShare(const Sees& sees,
                                               float (&scores)[kGroupsOfWarp][4]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float largest = MinusInfinity();
#pragma unroll
      for (int n = 0; n < kGroupsOfWarp; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[n][2 * j + e];
          if (!sees(j, Key(n, e))) score = MinusInfinity();
          largest = fmaxf(largest, score);
        }
      }
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
      if (Lane() % 4 == 0) Maxima()[Row(j) * kKeyGroups + ColGroup()] = largest;
    }
  }

  // As AttentionTile::Rebase, with the maxima of all warps.
  __device__ __forceinline__ bool Rebase(const ScoreScale& scale, float (&factor)[2]) {
    bool moved = false;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float largest = MinusInfinity();
#pragma unroll
      for (int w = 0; w < kColGroups; ++w) {
        largest = fmaxf(largest, Maxima()[Row(j) * kKeyGroups + w]);
      }
      const float most = RoundedProduct(largest, scale.factor);
      factor[j] = 1;
      if (!IsAboveBase(most, base[j])) continue;
      factor[j] = Exp2(base[j] - most);
      base[j] = most;
      moved = true;
    }
    return moved;
  }

  // Shares the weights of this warp's keys and their sums.
  __device__ __forceinline__ void Weigh(const ScoreScale& scale,
                                        const float (&scores)[kGroupsOfWarp][4]) const {
#pragma unroll
    for (int n = 0; n < kGroupsOfWarp; ++n) {
      const int group = ColGroup() * kGroupsOfWarp + n;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float subtracted = Subtracted(base[j]);
        const float low = Exp2(fmaf(scores[n][2 * j], scale.factor, -subtracted));
        const float high = Exp2(fmaf(scores[n][2 * j + 1], scale.factor, -subtracted));
        *reinterpret_cast<uint32_t*>(shared + kWeightsAt + WeightPiece(Row(j), group) +
                                     Lane() % 4 * 4) = PackPair<T>(low, high);
        float added = low + high;
        added += __shfl_xor_sync(kAllLanes, added, 1);
        added += __shfl_xor_sync(kAllLanes, added, 2);
        if (Lane() % 4 == 0) Sums()[Row(j) * kKeyGroups + group] = added;
      }
    }
  }

  __device__ __forceinline__ void AddToSums(const float (&factor)[2]) {
    static_assert(kKeyGroups == 4);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float* const of = Sums() + Row(j) * kKeyGroups;
      sum[j] = fmaf(sum[j], factor[j], (of[0] + of[1]) + (of[2] + of[3]));
    }
  }
  __device__ __forceinline__ void Multiply(const float (&factor)[2]) {
#pragma unroll
    for (int t = 0; t < kColTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[t][i] *= factor[i / 2];
    }
  }

  __device__ __forceinline__ void AddValues(const unsigned char* rows) {
    const int m = Lane() / 8, r = Lane() % 8;
#pragma unroll
    for (int half = 0; half < kKeys / 16; ++half) {
      uint32_t weights[4];
      LoadMatrices(weights, shared + kWeightsAt +
                                WeightPiece(16 * RowGroup() + m % 2 * 8 + r, 2 * half + m / 2));
      const int key = RowPiece(16 * half + m % 2 * 8 + r, m / 2) + ColGroup() * kColTiles / 8 * 128;
#pragma unroll
      for (int t = 0; t < kColTiles; t += 2) {
        uint32_t values[4];
        LoadTransposed(values, rows + Moved(key, t));
        Mma<T>(out[t], weights, values[0], values[1]);
        Mma<T>(out[t + 1], weights, values[2], values[3]);
      }
    }
  }
};

}  // namespace stagecoach::kernels::cuda
