// Decode whose results depend on a row's own position alone: a warp a unit of KV blocks, and
// whoever comes last to a sequence and head merges its units in their order, as prefill does.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/last_start.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 4, kBlocks = 3;  // of a block, of a multiprocessor

// Of n_units that are shared out over n_warps.
__device__ __forceinline__ int64_t FirstUnitOf(int64_t warp, int64_t n_units, int64_t n_warps) {
  return warp * n_units / n_warps;
}

template <typename T, int kDim, int kRowTiles>
struct DecodeWarp {
  using Tile = AttentionTile<T, kDim, kRowTiles>;

  const AttentionParams& p;
  // Of the unit.
  int32_t position, slot, row, kv_head, first_head, n_rows;

  __device__ __forceinline__ const int32_t* Table() const {
    return p.block_tables + int64_t{slot} * p.block_table_stride;
  }
  __device__ __forceinline__ const T* BlockOf(const void* cache, int32_t block) const {
    return static_cast<const T*>(cache) +
           (int64_t{block} * p.n_kv_heads + kv_head) * kBlockTokens * kDim;
  }

  __device__ __forceinline__ void LoadQueries(Tile& tile) const {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    const T* const q = static_cast<const T*>(p.qkv) +
                       (int64_t{row} * (p.n_heads + 2 * p.n_kv_heads) + first_head) * kDim;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int r = 8 * n + g;
      // Rows past the last repeat it; nothing is written of them.
      tile.q[n].Load(GlobalRow<T>{q + int64_t{r < n_rows ? r : n_rows - 1} * kDim});
    }
  }

  __device__ __forceinline__ void LoadKeys(int32_t block, KeyBlock<kDim>& keys) const {
    const T* const from = BlockOf(p.k, block);
    keys.rows[0].Load(GlobalRow<T>{from + KeyRow(0) * kDim});
    keys.rows[1].Load(GlobalRow<T>{from + KeyRow(1) * kDim});
  }
  __device__ __forceinline__ void LoadValues(int32_t block, ValueBlock<kDim>& values) const {
    const T* const from = BlockOf(p.v, block);
    values.Load([from](int i) { return GlobalRow<T>{from + ValueRow(i) * kDim}; });
  }

  // The blocks [begin, end) of the sequence. What earlier steps wrote is on its way before the
  // kernel before this one is done; the queries and this step's key are its results.
  __device__ __forceinline__ void Walk(int32_t begin, int32_t end, Tile& tile) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const Visible visible{p.window};
    const int32_t* const table = Table();
    // A lane an entry of the table, for the next 32 blocks.
    int32_t entries = begin + lane < end ? LoadPlan(table + begin + lane) : 0;
    KeyBlock<kDim> keys;
    ValueBlock<kDim> values;
    int32_t block = __shfl_sync(kAllLanes, entries, 0);
    const bool is_earlier = (begin + 1) * kBlockTokens <= position;
    if (!is_earlier) WaitForPrevious();
    LoadKeys(block, keys);
    LoadValues(block, values);
    if (is_earlier) WaitForPrevious();
    LoadQueries(tile);
    for (int32_t b = begin; b < end; ++b) {
      if (b > begin) LoadValues(block, values);
      // Not before: the next kernel's weights would come first, and all that is read here is waited
      // for.
      if (b + 1 == end) LetNextStart();
      float scores[kRowTiles][4];
      tile.Scores(keys, scores);
      if (b + 1 < end) {
        const int32_t next = (b + 1 - begin) % kWarpThreads;
        if (next == 0) entries = b + 1 + lane < end ? LoadPlan(table + b + 1 + lane) : 0;
        block = __shfl_sync(kAllLanes, entries, next);
        LoadKeys(block, keys);
      }
      const int32_t first_key = b * kBlockTokens;
      const bool all_visible =
          first_key >= visible.First(position) && first_key + kBlockTokens - 1 <= position;
      uint32_t weights[kRowTiles][2];
      tile.Weigh(
          p.scale, all_visible,
          [&](int h, int, int) { return visible(first_key + KeyRow(h), position); }, scores,
          weights);
      if (position - first_key < kBlockTokens - 1) values.ClearFrom(position - first_key + 1);
      tile.AddValues(values, weights);
    }
    tile.SumLanes();
  }

  __device__ __forceinline__ void Write(const Tile& tile) const {
    T* const out = static_cast<T*>(p.out) + (int64_t{row} * p.n_heads + first_head) * kDim;
    tile.Write([&](int r) { return r < n_rows ? out + int64_t{r} * kDim : nullptr; });
  }
};

template <typename T, int kDim, int kRowTiles>
__global__ void __launch_bounds__(kWarps* kWarpThreads, kDim <= 128 ? kBlocks : 2)
    FixedDecodeKernel(const AttentionParams p) {
  using Warp = DecodeWarp<T, kDim, kRowTiles>;
  using Tile = typename Warp::Tile;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  // The plan is there: the kernel that makes it lets no other start before it ends.
  const int32_t n_seqs = LoadPlan(p.plan.n_decodes);
  const int32_t n_of_head = LoadPlan(p.plan.unit_starts + n_seqs);  // units
  if (n_of_head == 0) return WaitForPrevious();
  const int32_t group = p.n_heads / p.n_kv_heads;
  const int32_t n_passes = (group + Tile::kRows - 1) / Tile::kRows;
  const int64_t n_units = int64_t{n_of_head} * p.n_kv_heads * n_passes;
  const int64_t all_warps = int64_t{gridDim.x} * kWarps;
  const int64_t n_warps = n_units < all_warps ? n_units : all_warps;
  // Neighbouring warps in different blocks: few of them still reach all multiprocessors.
  const int64_t warp = int64_t{threadIdx.x / kWarpThreads} * gridDim.x + blockIdx.x;
  if (warp >= n_warps) return WaitForPrevious();

  int64_t unit = FirstUnitOf(warp, n_units, n_warps);
  const int64_t end = FirstUnitOf(warp + 1, n_units, n_warps);
  for (; unit < end; ++unit) {
    const int32_t pass = static_cast<int32_t>(unit / n_of_head);  // of a KV head
    const int32_t of_head = static_cast<int32_t>(unit % n_of_head);
    const int32_t d = LastStart(p.plan.unit_starts, n_seqs, of_head);
    const int32_t seq_first = LoadPlan(p.plan.unit_starts + d);
    const int32_t n_of_seq = LoadPlan(p.plan.unit_starts + d + 1) - seq_first;
    const int32_t first = of_head - seq_first;
    const PlannedDecode seq = LoadPlan(p.plan.decodes + d);
    const int32_t position = seq.position;
    const int32_t kv_head = pass / n_passes;
    const int32_t first_in_group = pass % n_passes * Tile::kRows;
    const Warp work{.p = p,
                    .position = position,
                    .slot = seq.slot,
                    .row = seq.row,
                    .kv_head = kv_head,
                    .first_head = kv_head * group + first_in_group,
                    .n_rows = min(group - first_in_group, static_cast<int32_t>(Tile::kRows))};
    Tile tile;
    tile.Clear();
    const int32_t first_block =
        FirstUnitBlock(position, p.window, p.unit_blocks) + first * p.unit_blocks;
    const int32_t end_block = min(first_block + p.unit_blocks, position / kBlockTokens + 1);
    // A unit may begin behind the window.
    const int32_t first_seen = Visible{p.window}.First(position) / kBlockTokens;
    work.Walk(max(first_block, first_seen), end_block, tile);
    if (n_of_seq == 1) {
      work.Write(tile);
      continue;
    }
    // A place for each unit; the first one's counter is that of all.
    const int64_t seq_begin = unit - first;
    const auto state = [&](int32_t i) {
      return p.memory.states + (seq_begin + i) * (Tile::kStateFloats * kWarpThreads);
    };
    tile.Save(state(first));
    __threadfence();
    __syncwarp();
    int32_t* const counter = p.memory.counters + seq_begin;
    int32_t n_before = 0;
    if (lane == 0) n_before = atomicAdd(counter, 1);
    if (__shfl_sync(kAllLanes, n_before, 0) != n_of_seq - 1) continue;
    __threadfence();
    if (lane == 0) *counter = 0;
    tile.MergeAll(n_of_seq, state);
    work.Write(tile);
  }
}

template <typename T, int kDim, int kRowTiles>
cudaError_t LaunchFixed(const Stream& stream, const AttentionParams& params) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(stream.n_multiprocessors * kBlocks)),
                          .block = kWarps * kWarpThreads};
  return Launch<&FixedDecodeKernel<T, kDim, kRowTiles>>(stream, shape, params);
}

}  // namespace

cudaError_t FixedDecodeAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                                 int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    return DecodeRowTiles(params.n_heads, params.n_kv_heads) == 1
               ? LaunchFixed<T, kDim, 1>(stream, params)
               : LaunchFixed<T, kDim, 2>(stream, params);
  });
}

}  // namespace stagecoach::kernels::cuda
