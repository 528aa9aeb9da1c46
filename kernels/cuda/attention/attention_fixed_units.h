// Shared by the kernels that decode by fixed units. Units of a sequence are counted from its first
// token, independent of the rest of the batch. The warp or team that finishes last for a sequence
// and head merges the units in order, as prefill does.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/last_start.h"

namespace stagecoach::kernels::cuda {

// A unit of a sequence, for some of the query heads of one KV head.
struct Unit {
  int32_t position, slot, row;          // of the sequence
  int32_t n_earlier;                    // see PlannedDecode
  int32_t kv_head, first_head, n_rows;  // n_rows: number of query heads
  int32_t first_block, end_block;       // range of the sequence's KV blocks
  int32_t of_seq, n_of_seq;             // index in the sequence; number of units of the sequence
  int32_t seq_begin;                    // index of the sequence's first unit among all units
};

// All units of the step. Order: pass (KV head, then group of its query heads), sequence, unit.
struct Units {
  const AttentionParams& p;
  int32_t rows_of_pass;  // query heads of a KV head per pass
  int32_t n_seqs, n_of_head, n_passes;

  // The plan is complete: the kernel that builds it never calls LetNextStart().
  __device__ __forceinline__ static Units Of(const AttentionParams& p, int32_t rows_of_pass) {
    const int32_t n_seqs = LoadPlan(p.plan.n_decodes);
    return {p, rows_of_pass, n_seqs, LoadPlan(p.plan.unit_starts + n_seqs),
            (p.group() + rows_of_pass - 1) / rows_of_pass};
  }

  __device__ __forceinline__ int32_t Number() const { return n_of_head * p.n_kv_heads * n_passes; }
  __device__ __forceinline__ Unit At(int32_t i) const {
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
    // A unit may start before the first visible block.
    const int32_t first_seen = p.window.First(seq.position) / kBlockTokens;
    return {.position = seq.position,
            .slot = seq.slot,
            .row = seq.row,
            .n_earlier = seq.n_earlier,
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

// Addresses of a unit's keys, values and queries, and of its result.
template <typename T, int kDim, int kRowTiles>
struct UnitMemory {
  using Tile = AttentionTile<T, kDim, kRowTiles>;
  const AttentionParams& p;
  const Unit& unit;

  __device__ __forceinline__ const int32_t* Table() const {
    return p.block_tables + int64_t{unit.slot} * p.block_table_stride;
  }
  __device__ __forceinline__ const T* BlockOf(const void* cache, int32_t block) const {
    return static_cast<const T*>(cache) +
           (int64_t{block} * p.n_kv_heads + unit.kv_head) * kBlockTokens * kDim;
  }
  __device__ __forceinline__ void LoadQueries(Tile& tile) const {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    const T* const q =
        static_cast<const T*>(p.qkv) + (int64_t{unit.row} * p.n_in_row + unit.first_head) * kDim;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int r = 8 * n + g;
      // Rows beyond the last one repeat it; Write skips them.
      tile.q[n].Load(GlobalRow<T>{q + int64_t{r < unit.n_rows ? r : unit.n_rows - 1} * kDim});
    }
  }
  // One state per unit. The sequence's first unit has the counter for the whole sequence.
  __device__ __forceinline__ float* State(int32_t of_seq) const {
    return p.memory.states + int64_t{unit.seq_begin + of_seq} * (Tile::kStateFloats * kWarpThreads);
  }
  __device__ __forceinline__ int32_t* Counter() const { return p.memory.counters + unit.seq_begin; }
  // Writes the head, or its part that starts at first_element.
  template <typename PartTile>
  __device__ __forceinline__ void Write(const PartTile& tile, int first_element = 0) const {
    T* const out = static_cast<T*>(p.out) +
                   (int64_t{unit.row} * p.n_heads + unit.first_head) * kDim + first_element;
    tile.Write([&](int r) { return r < unit.n_rows ? out + int64_t{r} * kDim : nullptr; },
               [&](int r) { return p.sinks.ExponentOf(unit.first_head + r); });
  }
};

}  // namespace stagecoach::kernels::cuda
