// Decode by fixed units, a block a unit, then the next one that is its. As many KV blocks as there
// is room for are in shared memory. The warps take scores of every kWarps'th, then its weights,
// then each a part of the head for all of them, in their order; the next keys are on their way as
// soon as there are scores, the next values after that.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/attention_fixed_units.h"

namespace stagecoach::kernels::cuda {

// A block of the cache in shared memory.
template <int kDim, bool kValues>
struct SharedBlock {
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kBytes = kBlockTokens * kRowBytes;
  alignas(16) unsigned char at[kBytes];

  __device__ __forceinline__ static int Place(int row, int byte) {
    return row * kRowBytes + (kValues ? SwappedValue(row, byte) : SwappedKey(row, byte));
  }
};

// A row of one, from a byte on.
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

// Whether a head has parts for at least four warps, and rows a power of two long.
constexpr bool HasTeam(int dim) { return dim == 64 || dim == 128 || dim == 256; }

template <typename T, int kDim, int kRowTiles>
struct DecodeTeam {
  using Whole = AttentionTile<T, kDim, kRowTiles>;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpThreads;
  static constexpr int kParts = std::min(kWarps, kDim / 16);  // of the head, for as many warps
  static constexpr int kPart = kDim / kParts;
  using Tile = AttentionTile<T, kPart, kRowTiles>;

  // What a KV block takes of shared memory.
  struct Slot {
    SharedBlock<kDim, /*kValues=*/false> keys;
    SharedBlock<kDim, /*kValues=*/true> values;
    // A lane's scores, in whose place come the weights and what the sums grow by.
    float4 scores[kRowTiles][kWarpThreads];
    float2 most[kRowTiles][4];
  };
  struct Memory {
    alignas(16) int32_t is_last;
    Slot slots[1];  // and more: AttentionParams::team_blocks
  };
  // A lane has an entry of the table for each; of a unit of 32 blocks there are two rounds.
  static constexpr int kMostBlocks = std::min(24, 3072 / kDim);
  __host__ __device__ static constexpr size_t Bytes(int n_blocks) {
    return sizeof(Memory) + static_cast<size_t>(n_blocks - 1) * sizeof(Slot);
  }
  // How many there is room for; 0: not even for a few.
  static int BlocksIn(size_t shared_bytes) {
    constexpr int kFewest = 4;
    if (shared_bytes < Bytes(kFewest)) return 0;
    return std::min(kMostBlocks, 1 + static_cast<int>((shared_bytes - Bytes(1)) / sizeof(Slot)));
  }

  // Blocks of a unit that are taken at once.
  struct Round {
    Unit unit;
    int32_t first_block;
    int n_blocks;
    int32_t entries;  // of the table, a lane each

    __device__ __forceinline__ bool IsEnd() const {
      return first_block + n_blocks == unit.end_block;
    }
    // Its first ones, all of which earlier steps wrote.
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
    // Of more than there is room for, about half: the next ones come meanwhile.
    const int n_left = unit.end_block - first_block;
    const int n_blocks = n_left <= p.team_blocks ? n_left : min((n_left + 1) / 2, p.team_blocks);
    const int32_t* const table = UnitMemory<T, kDim, kRowTiles>{p, unit}.Table();
    return {unit, first_block, n_blocks,
            lane < n_blocks ? LoadPlan(table + first_block + lane) : 0};
  }

  // A round's blocks from `begin` to `end`.
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

  // The scores of this warp's blocks, of two at once: a product waits for the one before it.
  __device__ __forceinline__ void Score(const Whole& tile, const Round& round) const {
    constexpr int kAtOnce = 2;
    const Visible visible{p.window};
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
            first_key >= visible.First(position) && first_key + kBlockTokens - 1 <= position;
        float most[kRowTiles][2];
        Whole::Mask(
            p.scale, all_visible,
            [&](int h, int, int) { return visible(first_key + KeyRow(h), position); }, scores[i],
            most);
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

  // After all have scored: the weights of this warp's blocks, from the bases that the blocks before
  // leave. Bit b: the bases move with block b.
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
  // Whether one of the blocks behind the first moves a base, which few do.
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
  // Weigh, where each block's bases depend on those before.
  __device__ __forceinline__ uint32_t WeighInTurn(const Tile& tile, int n_blocks) const {
    uint32_t moves = 0;
    float base[kRowTiles][2];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) base[n][0] = tile.base[n][0], base[n][1] = tile.base[n][1];
    for (int first = 0; first < n_blocks; first += kWarps) {
      float most[kWarps][kRowTiles][2], own_base[kRowTiles][2] = {};
      // Past the last one that one again: nothing moves.
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

  // The bases move with block b.
  __device__ __forceinline__ void Move(Tile& tile, int b, float (&factor)[kRowTiles][2]) const {
    float most[kRowTiles][2];
    LoadMost(b, most);
    Tile::Rebase(most, tile.base, factor);
  }

  // This warp's part of the values of all blocks, which are read a few ahead. Warps without a part
  // need the bases.
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
      // As a rule all are whole, and no base moves.
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

  // A block with its weights and what the sums grow by, as WeighOne left them.
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

  // The team's result of a unit: to where it is merged, or where it goes.
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

  // What earlier steps wrote is on its way before the kernel before this one is done; the queries
  // and this step's keys are its results.
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
    CommitCopies();  // an empty group, where later rounds have their values
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
        // Not before: the next kernel's weights would come first, and all that is read here is
        // waited for.
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
