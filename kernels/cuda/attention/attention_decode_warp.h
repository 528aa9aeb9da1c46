// Decode by fixed units, one warp per unit.
#pragma once

#include "kernels/cuda/attention/attention_fixed_units.h"
#include "kernels/cuda/attention/cache_type.h"

namespace stagecoach::kernels::cuda {

template <typename Cache, int kRowTiles>
struct DecodeWarp {
  using T = typename Cache::T;
  static constexpr int kDim = Cache::kDim;
  using Memory = UnitMemory<T, kDim, kRowTiles>;
  using Tile = typename Memory::Tile;

  const AttentionParams& p;
  const Unit& unit;
  const Memory memory{p, unit};

  __device__ __forceinline__ const unsigned char* StoredHead(const void* cache,
                                                             int32_t block) const {
    return HeadAt<Cache>(cache, block * p.n_kv_heads + unit.kv_head);
  }

  // Processes the unit's blocks. Loads of keys from earlier steps start before the previous kernel
  // completes. Queries and this step's key come from that kernel.
  __device__ __forceinline__ void Walk(Tile& tile) const {
    const int32_t begin = unit.first_block, end = unit.end_block, position = unit.position;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int32_t* const table = memory.Table();
    // Each lane holds one block table entry, for the next 32 blocks.
    int32_t entries = begin + lane < end ? LoadPlan(table + begin + lane) : 0;
    typename Cache::Keys keys;
    typename Cache::Values values;
    int32_t block = __shfl_sync(kAllLanes, entries, 0);
    const bool is_earlier = (begin + 1) * kBlockTokens <= unit.n_earlier;
    if (!is_earlier) WaitForPrevious();
    Cache::Load(StoredHead(p.k, block), keys);
    Cache::Load(StoredHead(p.v, block), values);
    if (is_earlier) WaitForPrevious();
    memory.LoadQueries(tile);
    for (int32_t b = begin; b < end; ++b) {
      if (b > begin) Cache::Load(StoredHead(p.v, block), values);
      // Not earlier: the next kernel would prefetch its weights first, and this kernel waits for
      // its own loads.
      if (b + 1 == end) LetNextStart();
      float scores[kRowTiles][4];
      tile.Scores(keys, scores);
      if (b + 1 < end) {
        const int32_t next = (b + 1 - begin) % kWarpThreads;
        if (next == 0) entries = b + 1 + lane < end ? LoadPlan(table + b + 1 + lane) : 0;
        block = __shfl_sync(kAllLanes, entries, next);
        Cache::Load(StoredHead(p.k, block), keys);
      }
      const int32_t first_key = b * kBlockTokens;
      const bool all_visible =
          first_key >= p.window.First(position) && first_key + kBlockTokens - 1 <= position;
      uint32_t weights[kRowTiles][2];
      tile.Weigh(
          p.scale, all_visible,
          [&](int h, int, int) { return p.window.Sees(position, first_key + KeyRow(h)); }, scores,
          weights);
      if (position - first_key < kBlockTokens - 1) values.ClearFrom(position - first_key + 1);
      tile.AddValues(values, weights);
    }
    tile.SumLanes();
  }

  __device__ __forceinline__ void Run() const {
    Tile tile;
    tile.Clear();
    Walk(tile);
    if (unit.n_of_seq == 1) return memory.Write(tile);
    tile.Save(memory.State(unit.of_seq));
    __threadfence();
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    int32_t n_before = 0;
    if (lane == 0) n_before = atomicAdd(memory.Counter(), 1);
    if (__shfl_sync(kAllLanes, n_before, 0) != unit.n_of_seq - 1) return;
    __threadfence();
    if (lane == 0) *memory.Counter() = 0;
    tile.MergeAll(unit.n_of_seq, [&](int32_t i) { return memory.State(i); });
    memory.Write(tile);
  }
};

// The first unit of `warp` if n_units are split evenly over n_warps.
__device__ __forceinline__ int32_t FirstUnitOf(int32_t warp, int32_t n_units, int32_t n_warps) {
  return static_cast<int32_t>(int64_t{warp} * n_units / n_warps);
}

// Processes all units with the kWarps warps of each CTA in the grid.
template <typename Cache, int kRowTiles, int kWarps>
__device__ __forceinline__ void DecodeByWarps(const AttentionParams& p, const Units& units) {
  using Warp = DecodeWarp<Cache, kRowTiles>;
  const int32_t n_units = units.Number();
  const auto n_blocks = static_cast<int32_t>(gridDim.x);
  const int32_t n_warps = min(n_units, n_blocks * kWarps);
  // Consecutive warp indices are in different CTAs, so that few units still spread over all SMs.
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarpThreads * n_blocks +
                       static_cast<int32_t>(blockIdx.x);
  if (warp >= n_warps) return WaitForPrevious();
  const int32_t end = FirstUnitOf(warp + 1, n_units, n_warps);
  for (int32_t i = FirstUnitOf(warp, n_units, n_warps); i < end; ++i) {
    const Unit unit = units.At(i);
    Warp{p, unit}.Run();
  }
}

// CTAs per SM.
template <typename Cache, int kRowTiles>
inline constexpr int kFixedBlocks = ManyTilesBlocks(Cache::kDim, Cache::kIsFp8&& kRowTiles == 1);

template <typename Cache, int kRowTiles>
__global__ void __launch_bounds__(kManyTilesWarps* kWarpThreads, kFixedBlocks<Cache, kRowTiles>)
    FixedDecodeKernel(const AttentionParams p) {
  DecodeByWarps<Cache, kRowTiles, kManyTilesWarps>(p, Units::Of(p, 8 * kRowTiles));
}

template <typename Cache, int kRowTiles>
cudaError_t LaunchFixedWarps(const Stream& stream, const AttentionParams& params) {
  constexpr int kBlocks = kFixedBlocks<Cache, kRowTiles>;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(stream.n_multiprocessors * kBlocks)),
                          .block = kManyTilesWarps * kWarpThreads,
                          .n_together = kBlocks};
  return Launch<&FixedDecodeKernel<Cache, kRowTiles>>(stream, shape, params);
}

}  // namespace stagecoach::kernels::cuda
