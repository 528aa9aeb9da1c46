// Decode by fixed units with a team: one CTA computes one unit at a time. A round keeps as many KV
// blocks in shared memory as fit. Within a round, warp w computes the scores and then the softmax
// weights of blocks w, w + kWarps, ... After that, each warp accumulates one part of the head
// dimension over all blocks, in block order. Copies of the next round's keys start once the scores
// are computed, copies of its values once the current values are added.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/attention_fixed_units.h"

namespace stagecoach::kernels::cuda {

// The keys or values of one KV block and KV head in shared memory.
template <int kDim, bool kValues>
struct SharedBlock {
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kBytes = kBlockTokens * kRowBytes;
  alignas(16) unsigned char at[kBytes];

  __device__ __forceinline__ static int Place(int row, int byte) {
    return row * kRowBytes + (kValues ? SwappedValue(row, byte) : SwappedKey(row, byte));
  }
};

// A row of a SharedBlock, starting at a byte offset.
template <int kDim, bool kValues>
struct SharedBlockRow {
  const SharedBlock<kDim, kValues>& block;
  int row, first_byte = 0;

  template <typename V>
  __device__ __forceinline__ V At(int byte) const {
    return *reinterpret_cast<const V*>(block.at +
                                       SharedBlock<kDim, kValues>::Place(row, first_byte + byte));
  }
  __device__ __forceinline__ uint4 Load16(int byte) const { return At<uint4>(byte); }
  __device__ __forceinline__ uint2 Load8(int byte) const { return At<uint2>(byte); }
  __device__ __forceinline__ uint32_t Load4(int byte) const { return At<uint32_t>(byte); }
};

// Whether the head splits into parts for at least four warps and the row size is a power of two.
constexpr bool HasTeam(int dim) { return dim == 64 || dim == 128 || dim == 256; }

template <typename T, int kDim, int kRowTiles>
struct DecodeTeam {
  using Whole = AttentionTile<T, kDim, kRowTiles>;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpThreads;
  // Parts of the head dimension, one warp each.
  static constexpr int kParts = std::min(kWarps, kDim / 16);
  static constexpr int kPart = kDim / kParts;
  using Tile = AttentionTile<T, kPart, kRowTiles>;

  // Shared memory of one KV block.
  struct Slot {
    SharedBlock<kDim, /*kValues=*/false> keys;
    SharedBlock<kDim, /*kValues=*/true> values;
    // Per lane: the scores. WeighOne replaces them with the packed weights and the additions to the
    // sums.
    float4 scores[kRowTiles][kWarpThreads];
    float2 most[kRowTiles][4];
  };
  struct Memory {
    alignas(16) int32_t is_last;
    Slot slots[1];  // in fact AttentionParams::team_blocks slots
  };
  // Limit of blocks per round. Each lane holds one block table entry, so the limit is below 32; a
  // unit of 32 blocks takes two rounds.
  static constexpr int kMostBlocks = std::min(24, 3072 / kDim);
  __host__ __device__ static constexpr size_t Bytes(int n_blocks) {
    return sizeof(Memory) + static_cast<size_t>(n_blocks - 1) * sizeof(Slot);
  }
  // KV blocks that fit; 0: not even 4 fit.
  static int BlocksIn(size_t shared_bytes) {
    constexpr int kFewest = 4;
    if (shared_bytes < Bytes(kFewest)) return 0;
    return std::min(kMostBlocks, 1 + static_cast<int>((shared_bytes - Bytes(1)) / sizeof(Slot)));
  }

  // Consecutive KV blocks of a unit that the team processes together.
  struct Round {
    Unit unit;
    int32_t first_block;
    int n_blocks;
    int32_t entries;  // block table entries, one per lane

    __device__ __forceinline__ bool IsEnd() const {
      return first_block + n_blocks == unit.end_block;
    }
    // Number of leading blocks that earlier steps wrote completely.
    __device__ __forceinline__ int NEarlier() const {
      return min(max(unit.n_earlier / kBlockTokens - first_block, 0), n_blocks);
    }
  };

  const AttentionParams& p;
  const Units& units;
  Memory& shared;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;

  __device__ __forceinline__ Round RoundOf(const Unit& unit, int32_t first_block) const {
    // If not all remaining blocks fit, take about half of them: the copies of the rest overlap with
    // compute.
    const int n_left = unit.end_block - first_block;
    const int n_blocks = n_left <= p.team_blocks ? n_left : min((n_left + 1) / 2, p.team_blocks);
    const int32_t* const table = UnitMemory<T, kDim, kRowTiles>{p, unit}.Table();
    return {unit, first_block, n_blocks,
            lane < n_blocks ? LoadPlan(table + first_block + lane) : 0};
  }

  // Starts copies of the round's blocks [begin, end) to shared memory.
  template <bool kValues>
  __device__ __forceinline__ void Copy(const Round& round, int begin, int end) const {
    using Shared = SharedBlock<kDim, kValues>;
    const UnitMemory<T, kDim, kRowTiles> memory{p, round.unit};
    for (int b = begin; b < end; ++b) {
      const int32_t block = __shfl_sync(kAllLanes, round.entries, b);
      const T* const from = memory.BlockOf(kValues ? p.v : p.k, block);
      unsigned char* const to = kValues ? shared.slots[b].values.at : shared.slots[b].keys.at;
#pragma unroll
      for (int i = 0; i < Shared::kBytes; i += kThreads * 16) {
        const int byte = i + static_cast<int>(threadIdx.x) * 16;
        if (byte >= Shared::kBytes) break;
        CopyAsync16(to + Shared::Place(byte / Shared::kRowBytes, byte % Shared::kRowBytes),
                    from + byte / 2, true);
      }
    }
  }

  // Computes the scores of this warp's blocks, two at a time: each MMA depends on the previous one,
  // so two independent chains hide the latency.
  __device__ __forceinline__ void Score(const Whole& tile, const Round& round) const {
    constexpr int kAtOnce = 2;
    const int32_t position = round.unit.position;
    for (int first = warp; first < round.n_blocks; first += kAtOnce * kWarps) {
      const auto block = [&](int i) { return min(first + i * kWarps, round.n_blocks - 1); };
      float scores[kAtOnce][kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        KeyBlock<kDim> keys;
        keys.rows[0].Load(SharedBlockRow<kDim, false>{shared.slots[block(i)].keys, KeyRow(0)});
        keys.rows[1].Load(SharedBlockRow<kDim, false>{shared.slots[block(i)].keys, KeyRow(1)});
        tile.Scores(keys, scores[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i > 0 && first + i * kWarps >= round.n_blocks) break;
        const int b = block(i);
        const int32_t first_key = (round.first_block + b) * kBlockTokens;
        const bool all_visible =
            first_key >= p.window.First(position) && first_key + kBlockTokens - 1 <= position;
        float most[kRowTiles][2];
        Whole::Mask(
            p.scale, all_visible,
            [&](int h, int, int) { return p.window.Sees(position, first_key + KeyRow(h)); },
            scores[i], most);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          shared.slots[b].scores[n][lane] =
              make_float4(scores[i][n][0], scores[i][n][1], scores[i][n][2], scores[i][n][3]);
          if (lane < 4) shared.slots[b].most[n][lane] = make_float2(most[n][0], most[n][1]);
        }
      }
    }
  }

  __device__ __forceinline__ void LoadMost(int at, float (&most)[kRowTiles][2]) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const float2 two = shared.slots[at].most[n][lane % 4];
      most[n][0] = two.x, most[n][1] = two.y;
    }
  }

  // Runs after all warps have scored. Computes the weights of this warp's blocks, relative to the
  // bases that the preceding blocks leave. Bit b of the result is set if block b moves a base.
  __device__ __forceinline__ uint32_t Weigh(const Tile& tile, int n_blocks) const {
    float base[kRowTiles][2], most[kRowTiles][2], factor[kRowTiles][2];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) base[n][0] = tile.base[n][0], base[n][1] = tile.base[n][1];
    LoadMost(0, most);
    const bool moved = Tile::Rebase(most, base, factor);
    const uint32_t moves = __any_sync(kAllLanes, moved) ? 1 : 0;
    if (MoveBehindFirst(base, n_blocks)) return WeighInTurn(tile, n_blocks);
    for (int b = warp; b < n_blocks; b += kWarps) WeighOne(b, base);
    return moves;
  }
  // Whether a block after the first one moves a base. This is rare.
  __device__ __forceinline__ bool MoveBehindFirst(const float (&base)[kRowTiles][2],
                                                  int n_blocks) const {
    bool any = false;
    for (int b = 1 + lane / 4; b < n_blocks; b += kWarpThreads / 4) {
      float most[kRowTiles][2];
      LoadMost(b, most);
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        any |= IsAboveBase(most[n][0], base[n][0]) || IsAboveBase(most[n][1], base[n][1]);
      }
    }
    return __any_sync(kAllLanes, any);
  }
  // Weigh for the rare case: the bases of each block depend on the blocks before it.
  __device__ __forceinline__ uint32_t WeighInTurn(const Tile& tile, int n_blocks) const {
    uint32_t moves = 0;
    float base[kRowTiles][2];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) base[n][0] = tile.base[n][0], base[n][1] = tile.base[n][1];
    for (int first = 0; first < n_blocks; first += kWarps) {
      float most[kWarps][kRowTiles][2], own_base[kRowTiles][2] = {};
      // Beyond the last block, load the last one again: it does not move a base.
#pragma unroll
      for (int i = 0; i < kWarps; ++i) LoadMost(min(first + i, n_blocks - 1), most[i]);
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        float factor[kRowTiles][2];
        const bool moved = Tile::Rebase(most[i], base, factor);
        if (__any_sync(kAllLanes, moved)) moves |= 1u << (first + i);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          own_base[n][0] = i > warp ? own_base[n][0] : base[n][0];
          own_base[n][1] = i > warp ? own_base[n][1] : base[n][1];
        }
      }
      if (first + warp < n_blocks) WeighOne(first + warp, own_base);
    }
    return moves;
  }
  __device__ __forceinline__ void WeighOne(int at, const float (&base)[kRowTiles][2]) const {
    float scores[kRowTiles][4], added[kRowTiles][2];
    uint32_t weights[kRowTiles][2];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const float4 four = shared.slots[at].scores[n][lane];
      scores[n][0] = four.x, scores[n][1] = four.y, scores[n][2] = four.z, scores[n][3] = four.w;
    }
    Tile::ToWeights(p.scale, base, scores, weights, added);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      shared.slots[at].scores[n][lane] = make_float4(
          __uint_as_float(weights[n][0]), __uint_as_float(weights[n][1]), added[n][0], added[n][1]);
    }
  }

  // Moves the bases for block b.
  __device__ __forceinline__ void Move(Tile& tile, int b, float (&factor)[kRowTiles][2]) const {
    float most[kRowTiles][2];
    LoadMost(b, most);
    Tile::Rebase(most, tile.base, factor);
  }

  // Accumulates this warp's part of the head over the values of all blocks, loaded kAhead blocks at
  // a time. Warps without a part only keep track of the bases.
  __device__ __forceinline__ void Add(Tile& tile, const Round& round, uint32_t moves) const {
    constexpr int kAhead = 4;
    if (warp >= kParts) {
      float factor[kRowTiles][2];
      for (int b = 0; b < round.n_blocks; ++b) {
        if ((moves >> b & 1) != 0) Move(tile, b, factor);
      }
      return;
    }
    for (int first = 0; first < round.n_blocks; first += kAhead) {
      ValueBlock<kPart> values[kAhead];
      float4 slots[kAhead][kRowTiles];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int b = min(first + i, round.n_blocks - 1);
        values[i].Load([&](int row) {
          return SharedBlockRow<kDim, true>{shared.slots[b].values, ValueRow(row),
                                            warp * kPart * 2};
        });
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) slots[i][n] = shared.slots[b].scores[n][lane];
      }
      // Common case: all kAhead blocks are complete, and no base moves.
      const int32_t n_seen = round.unit.position - (round.first_block + first) * kBlockTokens + 1;
      if (first + kAhead <= round.n_blocks && n_seen >= kAhead * kBlockTokens &&
          (moves >> first & ((1u << kAhead) - 1)) == 0) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) AddOne(tile, slots[i], Same(), values[i]);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int b = first + i;
        if (b >= round.n_blocks) break;
        Factors factor = Same();
        if ((moves >> b & 1) != 0) {
          Move(tile, b, factor.at);
          tile.Multiply(factor.at);
        }
        if (n_seen < (i + 1) * kBlockTokens) values[i].ClearFrom(n_seen - i * kBlockTokens);
        AddOne(tile, slots[i], factor, values[i]);
      }
    }
  }

  struct Factors {
    float at[kRowTiles][2];
  };
  __device__ __forceinline__ static Factors Same() {
    Factors same;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) same.at[n][0] = same.at[n][1] = 1;
    return same;
  }

  // Adds one block, with the weights and sum additions that WeighOne stored.
  __device__ __forceinline__ static void AddOne(Tile& tile, const float4 (&slots)[kRowTiles],
                                                const Factors& factor,
                                                const ValueBlock<kPart>& values) {
    float added[kRowTiles][2];
    uint32_t weights[kRowTiles][2];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      weights[n][0] = __float_as_uint(slots[n].x), weights[n][1] = __float_as_uint(slots[n].y);
      added[n][0] = slots[n].z, added[n][1] = slots[n].w;
    }
    tile.AddToSums(factor.at, added);
    tile.AddValues(values, weights);
  }

  // Stores the team's result of a unit: as the output if the sequence has only this unit, else as a
  // state. The team that finishes last merges the states.
  __device__ __forceinline__ void Finish(const Unit& unit, Tile& tile) const {
    const UnitMemory<T, kDim, kRowTiles> memory{p, unit};
    tile.SumLanes();
    const StatePart part{warp, kParts};
    if (unit.n_of_seq > 1) {
      if (warp < kParts) tile.Save(memory.State(unit.of_seq), part);
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        shared.is_last = atomicAdd(memory.Counter(), 1) == unit.n_of_seq - 1 ? 1 : 0;
        if (shared.is_last != 0) *memory.Counter() = 0;
      }
      __syncthreads();
      if (shared.is_last == 0) return;
      __threadfence();
    }
    if (warp >= kParts) return;
    if (unit.n_of_seq > 1) {
      tile.MergeAll(unit.n_of_seq, [&](int32_t i) { return memory.State(i); }, part);
    }
    memory.Write(tile, warp * kPart);
  }

  // Copies of keys from earlier steps start before the previous kernel completes. Queries and this
  // step's keys come from that kernel.
  __device__ __forceinline__ void Run() const {
    const int32_t n_units = units.Number();
    auto i = static_cast<int32_t>(blockIdx.x);
    if (i >= n_units) return WaitForPrevious();
    const Unit first = units.At(i);
    Round round = RoundOf(first, first.first_block);
    const int n_earlier = round.NEarlier();
    Copy<false>(round, 0, n_earlier);
    Copy<true>(round, 0, n_earlier);
    WaitForPrevious();
    Copy<false>(round, n_earlier, round.n_blocks);
    Copy<true>(round, n_earlier, round.n_blocks);
    CommitCopies();
    CommitCopies();  // an empty group: in later rounds the values have their own group
    Whole whole;
    UnitMemory<T, kDim, kRowTiles>{p, round.unit}.LoadQueries(whole);
    Tile tile;
    tile.Clear();
    for (;;) {
      const bool is_end = round.IsEnd();
      if (is_end) i += static_cast<int32_t>(gridDim.x);
      const bool has_next = i < n_units;
      Round next = round;
      if (has_next) {
        const Unit unit = is_end ? units.At(i) : round.unit;
        next = RoundOf(unit, is_end ? unit.first_block : round.first_block + round.n_blocks);
      }
      WaitForCopies<1>();
      __syncthreads();
      Score(whole, round);
      __syncthreads();
      if (has_next) {
        Copy<false>(next, 0, next.n_blocks);
        if (is_end) UnitMemory<T, kDim, kRowTiles>{p, next.unit}.LoadQueries(whole);
      } else {
        // Not earlier: the next kernel would prefetch its weights first, and this kernel waits for
        // its own loads.
        LetNextStart();
      }
      CommitCopies();
      const uint32_t moves = Weigh(tile, round.n_blocks);
      WaitForCopies<1>();
      __syncthreads();
      Add(tile, round, moves);
      __syncthreads();
      if (has_next) Copy<true>(next, 0, next.n_blocks);
      CommitCopies();
      if (is_end) {
        Finish(round.unit, tile);
        tile.Clear();
      }
      if (!has_next) return;
      round = next;
    }
  }
};

}  // namespace stagecoach::kernels::cuda
