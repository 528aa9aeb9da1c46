// Decode whose results depend on a row's own position alone: a warp a unit of KV blocks, and
// whoever comes last to a sequence and head merges its units in their order, as prefill does.
// Where units are too few for that to keep memory busy, the warps of a block share one: each takes
// scores of every kWarps'th KV block, then a part of the head for all of them, in their order.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/last_start.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 4, kBlocks = 3;  // of a block, of a multiprocessor

// Of n_units that are shared out over n_warps.
__device__ __forceinline__ int32_t FirstUnitOf(int32_t warp, int32_t n_units, int32_t n_warps) {
  return static_cast<int32_t>(int64_t{warp} * n_units / n_warps);
}

// Whether the parts of a head are ones of AttentionTile.
constexpr bool HasTeam(int dim) { return dim % (16 * kWarps) == 0 && dim / kWarps % 64 != 48; }

// A unit of a sequence, for some of the query heads of a KV head.
struct Unit {
  int32_t position, slot, row;          // the sequence's
  int32_t kv_head, first_head, n_rows;  // query heads
  int32_t first_block, end_block;       // of the sequence
  int32_t of_seq, n_of_seq;             // which of how many
  int32_t seq_begin;                    // the number of the sequence's first
};

// All there are: of the first KV head's first query heads those of all sequences, and so on.
struct Units {
  const AttentionParams& p;
  int32_t n_seqs, n_of_head, n_passes;

  __device__ __forceinline__ int32_t Number() const { return n_of_head * p.n_kv_heads * n_passes; }
  __device__ __forceinline__ Unit At(int32_t i, int32_t rows_of_pass) const {
    const int32_t group = p.group();
    const int32_t pass = i / n_of_head, of_head = i % n_of_head;
    const int32_t d = LastStart(p.plan.unit_starts, n_seqs, of_head);
    const int32_t seq_first = LoadPlan(p.plan.unit_starts + d);
    const int32_t of_seq = of_head - seq_first;
    const PlannedDecode seq = LoadPlan(p.plan.decodes + d);
    const int32_t kv_head = pass / n_passes;
    const int32_t first_in_group = pass % n_passes * rows_of_pass;
    const int32_t first_block =
        FirstUnitBlock(seq.position, p.window, p.unit_blocks) + of_seq * p.unit_blocks;
    // A unit may begin behind the window.
    const int32_t first_seen = Visible{p.window}.First(seq.position) / kBlockTokens;
    return {.position = seq.position,
            .slot = seq.slot,
            .row = seq.row,
            .kv_head = kv_head,
            .first_head = kv_head * group + first_in_group,
            .n_rows = min(group - first_in_group, rows_of_pass),
            .first_block = max(first_block, first_seen),
            .end_block = min(first_block + p.unit_blocks, seq.position / kBlockTokens + 1),
            .of_seq = of_seq,
            .n_of_seq = LoadPlan(p.plan.unit_starts + d + 1) - seq_first,
            .seq_begin = i - of_seq};
  }
};

template <typename T, int kDim, int kRowTiles>
struct DecodeWarp {
  using Tile = AttentionTile<T, kDim, kRowTiles>;

  const AttentionParams& p;
  const int32_t position, slot, row, kv_head, first_head, n_rows;

  __device__ __forceinline__ DecodeWarp(const AttentionParams& params, const Unit& unit)
      : p(params),
        position(unit.position),
        slot(unit.slot),
        row(unit.row),
        kv_head(unit.kv_head),
        first_head(unit.first_head),
        n_rows(unit.n_rows) {}

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

  __device__ __forceinline__ T* Out() const {
    return static_cast<T*>(p.out) + (int64_t{row} * p.n_heads + first_head) * kDim;
  }
  __device__ __forceinline__ void Write(const Tile& tile) const {
    T* const out = Out();
    tile.Write([&](int r) { return r < n_rows ? out + int64_t{r} * kDim : nullptr; });
  }

  __device__ __forceinline__ void Run(const Unit& unit) const {
    Tile tile;
    tile.Clear();
    Walk(unit.first_block, unit.end_block, tile);
    if (unit.n_of_seq == 1) return Write(tile);
    // A place for each unit; the first one's counter is that of all.
    const auto state = [&](int32_t i) {
      return p.memory.states + int64_t{unit.seq_begin + i} * (Tile::kStateFloats * kWarpThreads);
    };
    tile.Save(state(unit.of_seq));
    __threadfence();
    __syncwarp();
    int32_t* const counter = p.memory.counters + unit.seq_begin;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    int32_t n_before = 0;
    if (lane == 0) n_before = atomicAdd(counter, 1);
    if (__shfl_sync(kAllLanes, n_before, 0) != unit.n_of_seq - 1) return;
    __threadfence();
    if (lane == 0) *counter = 0;
    tile.MergeAll(unit.n_of_seq, state);
    Write(tile);
  }
};

// The warps of a block on one unit.
template <typename T, int kDim, int kRowTiles>
struct DecodeTeam {
  using Warp = DecodeWarp<T, kDim, kRowTiles>;
  using Whole = typename Warp::Tile;
  static constexpr int kPart = kDim / kWarps;  // of the head
  using Tile = AttentionTile<T, kPart, kRowTiles>;
  static constexpr int kBlocksAtOnce = 32;
  // Blocks on their way, of keys and of this warp's values.
  static constexpr int kKeysAhead = kDim <= 128 ? 2 : 1, kValuesAhead = 128 / kPart;

  struct Memory {
    float4 scores[kBlocksAtOnce][kRowTiles][kWarpThreads];
    float2 most[kBlocksAtOnce][kRowTiles][4];
    int32_t is_last;
  };

  const Warp& work;
  Memory& memory;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;

  // The scores of every kWarps'th block; `entries` of the table, a lane each.
  __device__ __forceinline__ void Score(const Whole& tile, int32_t first_block, int n_blocks,
                                        int32_t entries, KeyBlock<kDim> (&keys)[kKeysAhead]) const {
    const AttentionParams& p = work.p;
    const Visible visible{p.window};
    for (int b = warp; b < n_blocks; b += kKeysAhead * kWarps) {
#pragma unroll
      for (int i = 0; i < kKeysAhead; ++i) {
        const int at = b + i * kWarps;
        if (at >= n_blocks) break;
        float scores[kRowTiles][4], most[kRowTiles][2];
        tile.Scores(keys[i], scores);
        const int next = at + kKeysAhead * kWarps;
        if (next < n_blocks) work.LoadKeys(__shfl_sync(kAllLanes, entries, next), keys[i]);
        const int32_t first_key = (first_block + at) * kBlockTokens;
        const bool all_visible = first_key >= visible.First(work.position) &&
                                 first_key + kBlockTokens - 1 <= work.position;
        Whole::Mask(
            p.scale, all_visible,
            [&](int h, int, int) { return visible(first_key + KeyRow(h), work.position); }, scores,
            most);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          memory.scores[at][n][lane] =
              make_float4(scores[n][0], scores[n][1], scores[n][2], scores[n][3]);
          if (lane < 4) memory.most[at][n][lane] = make_float2(most[n][0], most[n][1]);
        }
      }
    }
  }

  __device__ __forceinline__ void LoadValues(int32_t block, ValueBlock<kPart>& values) const {
    const T* const from = work.BlockOf(work.p.v, block) + warp * kPart;
    values.Load([from](int i) { return GlobalRow<T>{from + ValueRow(i) * kDim}; });
  }

  // This warp's part of the values of all blocks.
  __device__ __forceinline__ void Add(Tile& tile, int32_t first_block, int n_blocks,
                                      int32_t entries) const {
    ValueBlock<kPart> values[kValuesAhead];
#pragma unroll
    for (int i = 0; i < kValuesAhead; ++i) {
      const int32_t block = __shfl_sync(kAllLanes, entries, i);
      if (i < n_blocks) LoadValues(block, values[i]);
    }
    for (int first = 0; first < n_blocks; first += kValuesAhead) {
#pragma unroll
      for (int i = 0; i < kValuesAhead; ++i) {
        const int at = first + i;
        if (at >= n_blocks) break;
        float scores[kRowTiles][4], most[kRowTiles][2];
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          const float4 four = memory.scores[at][n][lane];
          const float2 two = memory.most[at][n][lane % 4];
          scores[n][0] = four.x, scores[n][1] = four.y, scores[n][2] = four.z,
          scores[n][3] = four.w;
          most[n][0] = two.x, most[n][1] = two.y;
        }
        uint32_t weights[kRowTiles][2];
        tile.WeighMasked(work.p.scale, most, scores, weights);
        const int32_t n_seen = work.position - (first_block + at) * kBlockTokens + 1;
        if (n_seen < kBlockTokens) values[i].ClearFrom(n_seen);
        tile.AddValues(values[i], weights);
        const int next = at + kValuesAhead;
        if (next < n_blocks) LoadValues(__shfl_sync(kAllLanes, entries, next), values[i]);
      }
    }
  }

  // The blocks [begin, end) of the sequence. The kernel before is waited for, as in DecodeWarp.
  __device__ __forceinline__ void Walk(int32_t begin, int32_t end, Tile& tile) const {
    const int32_t* const table = work.Table();
    for (int32_t first = begin; first < end; first += kBlocksAtOnce) {
      const int n_blocks = min(end - first, kBlocksAtOnce);
      const int32_t entries = lane < n_blocks ? LoadPlan(table + first + lane) : 0;
      // What Score does not ask for at once, into L2.
      for (int b = warp; b < n_blocks; b += kWarps) {
        const int32_t block = __shfl_sync(kAllLanes, entries, b);
        if (b >= kKeysAhead * kWarps) Announce(work.BlockOf(work.p.k, block));
        Announce(work.BlockOf(work.p.v, block));
      }
      KeyBlock<kDim> keys[kKeysAhead];
#pragma unroll
      for (int i = 0; i < kKeysAhead; ++i) {
        const int at = warp + i * kWarps;
        if (at >= n_blocks) break;
        const bool is_earlier = (first + at + 1) * kBlockTokens <= work.position;
        if (!is_earlier) WaitForPrevious();
        work.LoadKeys(__shfl_sync(kAllLanes, entries, at), keys[i]);
      }
      WaitForPrevious();
      Whole whole;
      work.LoadQueries(whole);
      Score(whole, first, n_blocks, entries, keys);
      __syncthreads();
      if (first + kBlocksAtOnce >= end) LetNextStart();
      Add(tile, first, n_blocks, entries);
      __syncthreads();
    }
    tile.SumLanes();
  }
  __device__ __forceinline__ void Announce(const T* block) const {
    constexpr int kLines = kBlockTokens * kDim * static_cast<int>(sizeof(T)) / 128;
    for (int line = lane; line < kLines; line += kWarpThreads) {
      PrefetchLine(reinterpret_cast<const unsigned char*>(block) + line * 128);
    }
  }

  __device__ __forceinline__ void Run(const Unit& unit) const {
    const AttentionParams& p = work.p;
    Tile tile;
    tile.Clear();
    Walk(unit.first_block, unit.end_block, tile);
    if (unit.n_of_seq > 1) {
      const auto state = [&](int32_t i) {
        return p.memory.states + int64_t{unit.seq_begin + i} * (Whole::kStateFloats * kWarpThreads);
      };
      const StatePart part{warp, kWarps};
      tile.Save(state(unit.of_seq), part);
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        int32_t* const counter = p.memory.counters + unit.seq_begin;
        memory.is_last = atomicAdd(counter, 1) == unit.n_of_seq - 1;
        if (memory.is_last) *counter = 0;
      }
      __syncthreads();
      if (!memory.is_last) return;
      __threadfence();
      tile.MergeAll(unit.n_of_seq, state, part);
    }
    T* const out = work.Out() + warp * kPart;
    tile.Write([&](int r) { return r < work.n_rows ? out + int64_t{r} * kDim : nullptr; });
  }
};

template <typename T, int kDim, int kRowTiles>
__global__ void __launch_bounds__(kWarps* kWarpThreads, kDim <= 128 ? kBlocks : 2)
    FixedDecodeKernel(const AttentionParams p) {
  using Warp = DecodeWarp<T, kDim, kRowTiles>;
  // The plan is there: the kernel that makes it lets no other start before it ends.
  const int32_t n_seqs = LoadPlan(p.plan.n_decodes);
  const Units units{p, n_seqs, LoadPlan(p.plan.unit_starts + n_seqs),
                    (p.group() + Warp::Tile::kRows - 1) / Warp::Tile::kRows};
  const int32_t n_units = units.Number();
  const auto block = static_cast<int32_t>(blockIdx.x), n_blocks = static_cast<int32_t>(gridDim.x);
  if constexpr (HasTeam(kDim)) {
    if (n_units <= n_blocks) {
      using Team = DecodeTeam<T, kDim, kRowTiles>;
      if (block >= n_units) return WaitForPrevious();
      const Unit unit = units.At(block, Warp::Tile::kRows);
      const Warp work{p, unit};
      Team{work, *reinterpret_cast<typename Team::Memory*>(DynamicShared())}.Run(unit);
      return;
    }
  }
  const int32_t n_warps = min(n_units, n_blocks * kWarps);
  // Neighbouring warps in different blocks: few of them still reach all multiprocessors.
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarpThreads * n_blocks + block;
  if (warp >= n_warps) return WaitForPrevious();
  const int32_t end = FirstUnitOf(warp + 1, n_units, n_warps);
  for (int32_t i = FirstUnitOf(warp, n_units, n_warps); i < end; ++i) {
    const Unit unit = units.At(i, Warp::Tile::kRows);
    Warp{p, unit}.Run(unit);
  }
}

template <typename T, int kDim, int kRowTiles>
cudaError_t LaunchFixed(const Stream& stream, const AttentionParams& params) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(stream.n_multiprocessors * kBlocks)),
                    .block = kWarps * kWarpThreads};
  if constexpr (HasTeam(kDim)) {
    shape.shared_bytes = sizeof(typename DecodeTeam<T, kDim, kRowTiles>::Memory);
  }
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
