// Attention over the paged KV cache. The cache is row-major, [n_blocks, n_kv_heads, kBlockTokens,
// head_dim], except for the rows that KvSides swaps. fp8_rows.h describes FP8 caches.
//
// There are four kernels: decode (sequences of one row), prefill (all other sequences; keys and
// values in shared memory), one for latents and heads of 512 (wide_attention.h), and a generic
// kernel for any dtype and head size (float32 models). Decode and prefill share AttentionTile.
// Hopper has its own prefill kernels, and one of them gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/key_window.h"
#include "kernels/cuda/attention/decode_shares.h"
#include "kernels/cuda/attention/hopper_prefill.h"
#include "kernels/cuda/attention/prefill_parts.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Packed rows (PrefillTile) per tile of the prefill kernel that every GPU can run.
inline constexpr int32_t kPrefillRows = 96;

// A sequence with one row in this step.
struct alignas(16) PlannedDecode {
  int32_t row, slot, position;
  int32_t n_earlier;  // leading keys that earlier steps wrote for certain
};

// How a step's attention is split; BuildStep creates it. Pointers are to device memory.
struct AttentionPlan {
  const int32_t* n_seqs;  // [1]
  // Decode: sequences of one row. Their KV blocks are counted in units of unit_blocks.
  const int32_t* n_decodes;      // [1]
  const PlannedDecode* decodes;  // [n_decodes]
  // [n_decodes + 1]: prefix sum of units per sequence. The first unit of a sequence holds the first
  // block that its row sees.
  const int32_t* unit_starts;
  // Without fixed units: how launches of decode_shape distribute the units.
  const DecodeShare* shares;  // [decode_shape.n_blocks]
  DecodeShape decode_shape;   // known on the host at launch, like the values below
  int32_t max_decodes;        // upper bound for the number of decodes; 0: none
  // Prefill: all other sequences, by n_prefill_blocks CTAs; 0: no such sequence. See PrefillShares.
  const int32_t* part_starts;  // [n_prefill_blocks + 1]
  const PrefillPart* parts;    // [part_starts[n_prefill_blocks]]
  const PrefillMerge* merges;  // [n_merges]
  int32_t n_prefill_blocks, n_merges;
  int32_t tile_rows;  // of the parts, for WideAttention
  HopperPlan hopper;  // for the sequences that `parts` leaves out
};

// The first KV block of a decoded sequence's units. Fixed units are counted from position 0.
__host__ __device__ constexpr int32_t FirstUnitBlock(int32_t position, KeyWindow window,
                                                     int32_t unit_blocks) {
  return window.First(position) / kBlockTokens / unit_blocks * unit_blocks;
}
__host__ __device__ constexpr int32_t NUnits(int32_t position, KeyWindow window,
                                             int32_t unit_blocks) {
  const int32_t first = FirstUnitBlock(position, window, unit_blocks);
  return (position / kBlockTokens - first) / unit_blocks + 1;
}

// Row tiles of 8 query rows per warp in decode: 2 if a KV head has more than 8 query heads.
inline int32_t DecodeRowTiles(int32_t n_heads, int32_t n_kv_heads) {
  return n_heads / n_kv_heads > 8 ? 2 : 1;
}
// Passes over the units of a KV head: each pass covers 8 * DecodeRowTiles query heads.
inline int32_t DecodePasses(int32_t n_heads, int32_t n_kv_heads) {
  const int32_t rows = 8 * DecodeRowTiles(n_heads, n_kv_heads);
  return static_cast<int32_t>(CeilDiv(n_heads / n_kv_heads, rows));
}

// Memory that all attention calls of a model share.
struct AttentionMemory {
  float* states;      // partial results over parts of the keys
  int32_t* counters;  // zero between calls
  uint32_t* tickets;  // [1], zero between calls: shares taken per L2 partition, 16 bits each
};

// Numbers of a key and of a value. Latents' values are the first numbers of the keys.
struct WideShape {
  int32_t key_dim = 0, value_dim = 0;
  bool operator==(const WideShape&) const = default;
};

struct AttentionSetup {
  // If true, the kernels keep the result of every unit and merge the units in order, so that a
  // row's result depends only on its own position. If false, units are distributed freely
  // (DecodeShare).
  bool fixed_units = false;
  int32_t unit_blocks = 1;              // with fixed_units: a multiple of kKeyTileBlocks
  int32_t prefill_rows = kPrefillRows;  // per tile; kHopperPackedRows selects HopperPackedPrefill
  // Not empty: WideAttention. Sequences of one row are planned as all others are, with
  // AttentionPlan::tile_rows per tile.
  WideShape wide = {};
  bool is_wide() const { return wide.value_dim > 0; }
};

// Sizes of AttentionMemory for a model with these heads.
struct AttentionNeeds {
  int64_t n_floats = 0;
  int64_t n_counters = 0;
};
AttentionNeeds NeedsOf(const Stream& stream, const AttentionSetup& setup, int32_t n_heads,
                       int32_t n_kv_heads, int32_t head_dim, int32_t max_slots, int32_t max_blocks);

// CTAs of the prefill kernel that run at the same time.
int32_t NPrefillBlocks(const Stream& stream, const AttentionSetup& setup, int32_t head_dim);
int32_t MaxPrefillBlocks(const Stream& stream);  // for any number of SMs left to other kernels
// Number of prefill part states that fit into AttentionMemory of size `needs`.
int32_t MaxPartStates(const Stream& stream, const AttentionSetup& setup,
                      const AttentionNeeds& needs, int32_t head_dim);

// Whether the tensor-core kernels support activations of this dtype and this head size.
bool HasAttentionTile(DType dtype, int32_t head_dim);

// Decode and prefill of one call on the tensor cores. REQUIRES: HasAttentionTile; `gathered` has
// room for the keys of plan.hopper, if that has work; `sides` is empty with fixed units.
cudaError_t TileAttention(const Stream& stream, const AttentionArgs& args,
                          const AttentionPlan& plan, const AttentionSetup& setup,
                          const AttentionMemory& memory, const GatheredKeys& gathered,
                          const KvSides& sides);

// Attention for any dtype and any head size up to 512, with one warp per row and query head. A
// row's result depends only on its position.
cudaError_t GenericAttention(const Stream& stream, const AttentionArgs& args,
                             const AttentionPlan& plan);

}  // namespace stagecoach::kernels::cuda
