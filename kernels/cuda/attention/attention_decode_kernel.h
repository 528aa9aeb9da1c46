// Decode: one query row per sequence against all its keys. It is memory-bound, so a warp walks over
// KV blocks in registers only and always has loads in flight. The warps of a CTA take the KV blocks
// of its share in round-robin order and combine their results in shared memory at the end of each
// segment. If several CTAs share a segment, the CTA that finishes last merges the parts.
//
// Source: T. Dao, D. Haziza, F. Massa, G. Sizov, "Flash-Decoding for long-context inference", 2023.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_results.h"
#include "kernels/cuda/attention/cache_type.h"
#include "kernels/cuda/attention/kv_rows.h"

namespace stagecoach::kernels::cuda {

// Fan-in of the merge tree: this many partial results are merged at a time, level by level.
inline constexpr int32_t kMergeWidth = 16;

template <typename Cache, int kRowTiles, int kWarps>
struct DecodeBlock {
  using T = typename Cache::T;
  static constexpr int kDim = Cache::kDim;
  using Tile = AttentionTile<T, kDim, kRowTiles>;
  using Shared = SharedResult<kDim, kRowTiles>;
  using Global = GlobalResult<kDim, kRowTiles>;
  using Shape = ResultShape<kDim, kRowTiles>;

  struct Memory {
    Shared results[kWarps];
    DecodeShare share;
    int32_t index;    // of the share
    int32_t query;    // of the segment that is merged
    int32_t is_last;  // whether this CTA merges
  };

  // A KV block of the share, with the query of its segment.
  struct Unit {
    // Cache row of its keys (see KvSides): block * n_kv_heads + KV head, or its swap partner.
    int32_t cache_row;
    int32_t query;  // row * n_passes + pass
    // Bit fields: segment of the share; whether the values are in the swap partner of cache_row;
    // number of keys that the row sees, counted from the block's first key; number of keys before
    // the window.
    uint32_t where;

    static constexpr int kSeenShift = 4, kValuesShift = 9, kSegmentShift = 10;
    __device__ __forceinline__ int32_t segment() const {
      return static_cast<int32_t>(where >> kSegmentShift);
    }
    // kBlockTokens + 1 if earlier steps wrote all keys of the block.
    __device__ __forceinline__ int32_t n_seen() const {
      return static_cast<int32_t>(where >> kSeenShift & 31);
    }
    __device__ __forceinline__ int32_t value_row(int32_t chunk_rows_log2) const {
      return cache_row ^ static_cast<int32_t>((where >> kValuesShift & 1) << chunk_rows_log2);
    }
    // Keys of the block that lie before the window.
    __device__ __forceinline__ int32_t n_behind() const { return static_cast<int32_t>(where & 15); }
    __device__ __forceinline__ bool is_earlier() const { return n_seen() > kBlockTokens; }
  };

  const AttentionParams& p;
  Memory& memory;
  const DecodeShare& share = memory.share;  // in shared memory, to save registers
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int32_t passes_of_head = (p.n_heads / p.n_kv_heads + Shape::kRows - 1) / Shape::kRows;
  const int32_t n_passes = p.n_kv_heads * passes_of_head;
  const int32_t n_side_passes = n_passes / p.plan.decode_shape.n_sides;

  // Computes 32 units of this warp, one per lane: lane l gets unit `first` + l.
  __device__ __forceinline__ Unit UnitsFrom(int32_t first) const {
    const int32_t unit = warp + (first + lane) * kWarps;
    if (unit >= share.n_kv_blocks) return {};
    const int32_t* const starts = p.plan.unit_starts;
    int32_t decode = share.first_decode;
    int32_t start = LoadPlan(starts + decode), end = LoadPlan(starts + decode + 1);
    // Counted from the first pass of the first sequence.
    const int32_t place = unit + share.first_pass * (end - start) + share.first_block;
    const int32_t first_start = start;
    int32_t behind = decode + (share.first_pass + share.n_segments - 1) / n_side_passes + 1;
    if (behind - decode > 1) {
      while (behind - decode > 1) {
        const int32_t middle = (decode + behind) / 2;
        if ((LoadPlan(starts + middle) - first_start) * n_side_passes <= place) {
          decode = middle;
        } else {
          behind = middle;
        }
      }
      start = LoadPlan(starts + decode);
      end = LoadPlan(starts + decode + 1);
    }
    const PlannedDecode seq = LoadPlan(p.plan.decodes + decode);
    const int32_t in_seq = place - (start - first_start) * n_side_passes;
    const int32_t pass_of_side = in_seq / (end - start), pass = PassOf(pass_of_side);
    const int32_t index = FirstUnitBlock(seq.position, p.window, 1) + in_seq % (end - start);
    const int32_t first_key = index * kBlockTokens;
    const int32_t block =
        LoadPlan(p.block_tables + int64_t{seq.slot} * p.block_table_stride + index);
    const int32_t segment =
        (decode - share.first_decode) * n_side_passes + pass_of_side - share.first_pass;
    const int32_t n_seen = first_key + kBlockTokens <= seq.n_earlier
                               ? kBlockTokens + 1
                               : min(seq.position - first_key + 1, kBlockTokens);
    const int32_t n_behind = max(p.window.First(seq.position) - first_key, 0);
    const int32_t row = block * p.n_kv_heads + pass / passes_of_head;
    const int32_t key_row = CacheRowOf(p.sides, p.sides.k, row);
    const bool has_other_values = CacheRowOf(p.sides, p.sides.v, row) != key_row;
    return {.cache_row = key_row,
            .query = seq.row * n_passes + pass,
            .where = static_cast<uint32_t>(segment << Unit::kSegmentShift |
                                           (has_other_values ? 1 << Unit::kValuesShift : 0) |
                                           n_seen << Unit::kSeenShift | n_behind)};
  }
  // Maps a pass index within the share's L2 partition to a pass over all heads.
  __device__ __forceinline__ int32_t PassOf(int32_t of_side) const {
    const DecodeShape& shape = p.plan.decode_shape;
    if (shape.n_sides == 1) return of_side;
    const int32_t side = memory.index < shape.n_first_side() ? 0 : 1;
    return HeadOfSide(side, of_side / passes_of_head, shape.chunk_rows_log2) * passes_of_head +
           of_side % passes_of_head;
  }
  __device__ __forceinline__ static Unit Of(const Unit& units, int32_t at) {
    return {.cache_row = __shfl_sync(kAllLanes, units.cache_row, at),
            .query = __shfl_sync(kAllLanes, units.query, at),
            .where = __shfl_sync(kAllLanes, units.where, at)};
  }

  __device__ __forceinline__ const unsigned char* KeysOf(const Unit& unit) const {
    return HeadAt<Cache>(p.k, unit.cache_row);
  }
  __device__ __forceinline__ const unsigned char* ValuesOf(const Unit& unit) const {
    return HeadAt<Cache>(p.v, unit.value_row(p.sides.chunk_rows_log2));
  }
  // Prefetches the unit into L2.
  __device__ __forceinline__ void Announce(const Unit& unit) const {
    constexpr int kLines = (Cache::kHeadBytes + 127) / 128;
    for (int line = lane; line < kLines; line += kWarpThreads) {
      PrefetchLine(KeysOf(unit) + line * 128);
      PrefetchLine(ValuesOf(unit) + line * 128);
    }
  }

  // Number of query heads of a pass; below, the first of them.
  __device__ __forceinline__ int32_t NRows(int32_t pass) const {
    const int32_t first = pass % passes_of_head * Shape::kRows;
    return min(p.n_heads / p.n_kv_heads - first, static_cast<int32_t>(Shape::kRows));
  }
  __device__ __forceinline__ int32_t FirstHead(int32_t pass) const {
    return pass / passes_of_head * (p.n_heads / p.n_kv_heads) +
           pass % passes_of_head * Shape::kRows;
  }

  __device__ __forceinline__ void LoadQueries(int32_t query, Tile& tile) const {
    const int32_t row = query / n_passes, pass = query % n_passes, n_rows = NRows(pass);
    const T* const q =
        static_cast<const T*>(p.qkv) + (int64_t{row} * p.n_in_row + FirstHead(pass)) * kDim;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int r = 8 * n + lane / 4;
      // Rows beyond the last one repeat it; nothing is written for them.
      tile.q[n].Load(GlobalRow<T>{q + int64_t{r < n_rows ? r : n_rows - 1} * kDim});
    }
  }

  __device__ __forceinline__ void Run() const {
    const int32_t n_mine = (share.n_kv_blocks - warp + kWarps - 1) / kWarps;
    Unit units = UnitsFrom(0), later{};
    Unit unit = Of(units, 0);
    typename Cache::Keys keys;
    typename Cache::Values values;
    Tile tile;
    // Loads of keys from earlier steps start before the previous kernel completes. Queries and this
    // step's keys come from that kernel.
    if (n_mine <= 0) {
      LetNextStart();
      WaitForPrevious();
    } else {
      const bool is_earlier = unit.is_earlier();
      if (!is_earlier) WaitForPrevious();
      Cache::Load(KeysOf(unit), keys);
      Cache::Load(ValuesOf(unit), values);
      if constexpr (kWarps != kManyTilesWarps) {
        if (n_mine > 1) Announce(Of(units, 1));
        if (n_mine > 2) Announce(Of(units, 2));
      }
      if (n_mine > kWarpThreads) later = UnitsFrom(kWarpThreads);
      if (is_earlier) WaitForPrevious();
      LoadQueries(unit.query, tile);
    }
    int32_t done = 0;
    for (int32_t segment = 0; segment < share.n_segments; ++segment) {
      const bool has_keys = done < n_mine && unit.segment() == segment;
      const int32_t query = unit.query;
      tile.Clear();
      while (done < n_mine && unit.segment() == segment) {
        float scores[kRowTiles][4];
        tile.Scores(keys, scores);
        ++done;
        Unit next{};
        if (done < n_mine) {
          if (done % kWarpThreads == 0) {
            units = later;
            if (n_mine > done + kWarpThreads) later = UnitsFrom(done + kWarpThreads);
          }
          next = Of(units, done % kWarpThreads);
          Cache::Load(KeysOf(next), keys);
        } else {
          // Not earlier: the next kernel would prefetch its weights first, and this kernel waits
          // for its own loads.
          LetNextStart();
        }
        const int32_t n_seen = unit.n_seen(), n_behind = unit.n_behind();
        uint32_t weights[kRowTiles][2];
        tile.Weigh(
            p.scale, n_seen >= kBlockTokens && n_behind == 0,
            [&](int h, int, int) { return KeyRow(h) < n_seen && KeyRow(h) >= n_behind; }, scores,
            weights);
        if (n_seen < kBlockTokens) values.ClearFrom(n_seen);
        tile.AddValues(values, weights);
        if (done < n_mine) Cache::Load(ValuesOf(next), values);
        unit = next;
      }
      // Wait until all warps have read the results of the previous segment.
      if (segment > 0) __syncthreads();
      if (has_keys) {
        tile.SumLanes();
        Leave(tile, query);
        if (done < n_mine) LoadQueries(unit.query, tile);
      } else if (lane < Shape::kRows) {
        memory.results[warp].rows[lane] = float2{MinusInfinity(), 0};
      }
      __syncthreads();
      Merge(segment);
    }
  }

  __device__ __forceinline__ void Leave(const Tile& tile, int32_t query) const {
    Shared& to = memory.results[warp];
    const int g = lane / 4, c = lane % 4;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (g == 0) to.rows[8 * n + 2 * c + j] = float2{tile.base[n][j], tile.sum[n][j]};
#pragma unroll
        for (int t = 0; t < Shape::kDimTiles; ++t) {
          to.pairs[(2 * n + j) * Shape::kDimTiles + t][lane] =
              float2{tile.out[n][t][j], tile.out[n][t][2 + j]};
        }
      }
    }
    if (lane == 0) memory.query = query;
  }

  // Merges the results of the warps for a segment, together with those of other CTAs, and stores
  // the result.
  __device__ __forceinline__ void Merge(int32_t segment) const {
    const int32_t block = memory.index, query = memory.query;
    const bool is_first = segment == 0, is_last = segment == share.n_segments - 1;
    const int32_t n_parts = is_first ? share.first_parts : is_last ? share.last_parts : 1;
    const int32_t first_owner = is_first ? share.first_owner : block;
    // Two state slots per CTA: for a segment that begins before its share, and for one that ends
    // after it.
    const auto place = [&](int32_t part) {
      return part == 0 ? 2 * first_owner + 1 : 2 * (first_owner + part);
    };
    const auto state = [&](int32_t part) {
      return Global(p.memory.states + int64_t{place(part)} * Global::kFloats);
    };
    int32_t part = block - first_owner;
    if (n_parts == 1) {
      MergeAll(
          kWarps, query, [&](int32_t i) -> const Shared& { return memory.results[i]; }, nullptr);
      return;
    }
    {
      const Global to = state(part);
      MergeAll(kWarps, query, [&](int32_t i) -> const Shared& { return memory.results[i]; }, &to);
    }
    // The CTA that arrives last in a group of neighbours merges the group into the state of its
    // first member, then continues with the group of groups.
    int32_t* counters = p.memory.counters;
    for (int32_t stride = 1;; stride *= kMergeWidth, counters += 2 * gridDim.x) {
      const int32_t group_first = part / (stride * kMergeWidth) * (stride * kMergeWidth);
      const int32_t n_members = min(kMergeWidth, (n_parts - group_first + stride - 1) / stride);
      const bool is_all = group_first == 0 && n_parts <= stride * kMergeWidth;
      if (n_members == 1) continue;  // a single member: no merge on this level
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        int32_t* const counter = counters + place(group_first);
        memory.is_last = atomicAdd(counter, 1) == n_members - 1;
        if (memory.is_last) *counter = 0;
      }
      __syncthreads();
      if (memory.is_last == 0) return;
      __threadfence();
      const Global to = state(group_first);
      MergeAll(
          n_members, query, [&](int32_t i) { return state(group_first + i * stride); },
          is_all ? nullptr : &to);
      if (is_all) return;
      part = group_first;
    }
  }

  // Merges n results in order, into `to` or as the query's output if `to` is null. Each warp takes
  // some parts of the rows.
  template <typename ResultOf>
  __device__ __forceinline__ void MergeAll(int32_t n, int32_t query, const ResultOf& result_of,
                                           const Global* to) const {
    const int32_t row = query / n_passes, pass = query % n_passes, n_rows = NRows(pass);
    const int g = lane / 4, c = lane % 4;
    for (int item = warp; item < Shape::kItems; item += kWarps) {
      const int part = item % Shape::kParts;
      const int r = item / (2 * Shape::kParts) * 8 + 2 * c + item / Shape::kParts % 2;
      const int first_pair = item / Shape::kParts * Shape::kDimTiles + 4 * part;
      const int32_t n_read = r < n_rows ? n : 0;
      RowPart merged;
#pragma unroll 4
      for (int32_t i = 0; i < n_read; ++i) {
        const auto& result = result_of(i);
        float2 pairs[4] = {};
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          if (4 * part + t < Shape::kDimTiles) pairs[t] = result.Pair(r, first_pair + t);
        }
        merged.Add(result.Row(r, part), pairs);
      }
      __syncwarp();  // `to` may alias the first result: wait until all lanes of a row have read it
      if (r >= n_rows) continue;
      if (to != nullptr) {
        if (g == 0) *reinterpret_cast<float2*>(to->RowAt(r, part)) = {merged.max, merged.sum};
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          if (4 * part + t >= Shape::kDimTiles) continue;
          *reinterpret_cast<float2*>(to->PairAt(first_pair + t)) = merged.pairs[t];
        }
        continue;
      }
      T* const out =
          static_cast<T*>(p.out) + (int64_t{row} * p.n_heads + FirstHead(pass) + r) * kDim;
      const float inverse =
          InverseOfSum(merged.max, merged.sum, p.sinks.ExponentOf(FirstHead(pass) + r));
      uint32_t packed[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        packed[t] = PackPair<T>(merged.pairs[t].x * inverse, merged.pairs[t].y * inverse);
      }
      if (part < kDim / 64) {
        *reinterpret_cast<uint4*>(out + 64 * part + 8 * g) =
            make_uint4(packed[0], packed[1], packed[2], packed[3]);
      } else {
#pragma unroll
        for (int t = 0; t < Shape::kDimTiles % 4; ++t) {
          *reinterpret_cast<uint32_t*>(out + ValueElement<kDim>(kDim / 64 * 4 + t, g)) = packed[t];
        }
      }
    }
  }
};

template <typename Cache>
constexpr int BlocksOfMultiprocessor(int warps) {
  return warps == kManyTilesWarps ? ManyTilesBlocks(Cache::kDim, Cache::kIsFp8) : 1;
}

// Returns the index of this CTA's share: the next share of the L2 partition near its SM, or if none
// is left, one from the end of the other partition. The assignment of CTAs to SMs is unknown before
// launch.
__device__ __forceinline__ int32_t TakeShare(const AttentionParams& p, int32_t* shared) {
  if (threadIdx.x == 0) {
    const int32_t n = p.plan.decode_shape.n_blocks;
    const int32_t n_first = p.plan.decode_shape.n_first_side();
    const bool is_first = p.l2.SideOf(Multiprocessor()) == 0;
    const uint32_t before = atomicAdd(p.memory.tickets, is_first ? 1u : 1u << 16);
    const auto first = static_cast<int32_t>(before & 0xffff);
    const auto second = static_cast<int32_t>(before >> 16);
    if (first + second == n - 1) atomicExch(p.memory.tickets, 0u);
    if (is_first) {
      *shared = first < n_first ? first : n - 1 - (first - n_first);
    } else {
      *shared = second < n - n_first ? n_first + second : n - 1 - second;
    }
  }
  __syncthreads();
  return *shared;
}

template <typename Cache, int kRowTiles, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarpThreads, BlocksOfMultiprocessor<Cache>(kWarps))
    DecodeKernel(const AttentionParams p) {
  using Block = DecodeBlock<Cache, kRowTiles, kWarps>;
  auto& memory = *reinterpret_cast<typename Block::Memory*>(DynamicShared());
  auto index = static_cast<int32_t>(blockIdx.x);
  if (p.plan.decode_shape.n_sides > 1) index = TakeShare(p, &memory.index);
  // The plan is complete: the kernel that builds it never calls LetNextStart().
  const DecodeShare share = LoadPlan(p.plan.shares + index);
  if (share.n_kv_blocks == 0) return WaitForPrevious();
  const Block block{p, memory};
  // Every warp writes the same values, so that no warp waits for another.
  if (block.lane == 0) {
    block.memory.share = share;
    block.memory.index = index;
  }
  __syncwarp();
  block.Run();
}

template <typename Cache, int kRowTiles, int kWarps>
cudaError_t LaunchDecode(const Stream& stream, const AttentionParams& params) {
  using Block = DecodeBlock<Cache, kRowTiles, kWarps>;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.plan.decode_shape.n_blocks)),
                          .block = kWarps * kWarpThreads,
                          .shared_bytes = sizeof(typename Block::Memory),
                          .n_together = BlocksOfMultiprocessor<Cache>(kWarps)};
  return Launch<&DecodeKernel<Cache, kRowTiles, kWarps>>(stream, shape, params);
}

// LaunchDecode with the shape of the plan.
template <typename Cache>
cudaError_t Decode(const Stream& stream, const AttentionParams& params) {
  const bool has_one_tile = DecodeRowTiles(params.n_heads, params.n_kv_heads) == 1;
  constexpr int kFew = FewTilesWarps(Cache::kDim, Cache::kIsFp8);
  // Shares do not depend on the number of warps. If shared memory is too small, use fewer warps.
  const bool has_room = has_one_tile || sizeof(typename DecodeBlock<Cache, 2, kFew>::Memory) <=
                                            stream.block_shared_bytes;
  if (params.plan.decode_shape.n_warps != kManyTilesWarps && has_room) {
    return has_one_tile ? LaunchDecode<Cache, 1, kFew>(stream, params)
                        : LaunchDecode<Cache, 2, kFew>(stream, params);
  }
  return has_one_tile ? LaunchDecode<Cache, 1, kManyTilesWarps>(stream, params)
                      : LaunchDecode<Cache, 2, kManyTilesWarps>(stream, params);
}

}  // namespace stagecoach::kernels::cuda
