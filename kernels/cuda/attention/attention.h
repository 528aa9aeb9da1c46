// Attention over the paged cache, which is row-major: [n_blocks, n_kv_heads, kBlockTokens,
// head_dim].
//
// Three kernels: decode (sequences of one row), prefill (all others; keys and values in shared
// memory) and one that takes any type and head size (float32 models). The first two share
// AttentionTile; Hopper has prefill kernels of its own, one of them with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/decode_shares.h"
#include "kernels/cuda/attention/prefill_parts.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/hopper/hopper_prefill.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Packed rows (PrefillTile) of a tile, of the kernel that any GPU has.
inline constexpr int32_t kPrefillRows = 96;

// A sequence of one row.
struct alignas(16) PlannedDecode {
  int32_t row, slot, position;
  int32_t n_earlier;  // of its first keys, those that steps before this one wrote for certain
};

// How a step's attention is cut up; made by BuildStep. Pointers are to device memory.
struct AttentionPlan {
  const int32_t* n_seqs;  // [1]
  // Sequences of one row are decoded: their KV blocks are counted in units of unit_blocks.
  const int32_t* n_decodes;      // [1]
  const PlannedDecode* decodes;  // [n_decodes]
  const int32_t* unit_starts;    // [n_decodes + 1]: units of the sequences before; the first unit
                                 // of a sequence holds the first block that its row sees
  // Units that are not fixed: how they are shared out, for launches of decode_shape.
  const DecodeShare* shares;  // [decode_shape.n_blocks]
  DecodeShape decode_shape;   // on the host, as all that follows
  int32_t max_decodes;        // no more than this many; 0: none
  // All others are prefilled, by n_prefill_blocks blocks; 0: there are none. PrefillShares.
  const int32_t* part_starts;  // [n_prefill_blocks + 1]
  const PrefillPart* parts;    // [part_starts[n_prefill_blocks]]
  const PrefillMerge* merges;  // [n_merges]
  int32_t n_prefill_blocks, n_merges;
  HopperPlan hopper;  // of the sequences that `parts` leaves out
};

// The first key that a row sees; window 0: all.
__host__ __device__ constexpr int32_t FirstSeen(int32_t position, int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}
// The first block of a decoded sequence's units. Fixed ones are counted from position 0.
__host__ __device__ constexpr int32_t FirstUnitBlock(int32_t position, int32_t window,
                                                     int32_t unit_blocks) {
  return FirstSeen(position, window) / kBlockTokens / unit_blocks * unit_blocks;
}
__host__ __device__ constexpr int32_t NUnits(int32_t position, int32_t window,
                                             int32_t unit_blocks) {
  const int32_t first = FirstUnitBlock(position, window, unit_blocks);
  return (position / kBlockTokens - first) / unit_blocks + 1;
}

// The number of row tiles, of 8, that a decode's warp takes: 2 if one is not enough for the query
// heads of a KV head.
inline int32_t DecodeRowTiles(int32_t n_heads, int32_t n_kv_heads) {
  return n_heads / n_kv_heads > 8 ? 2 : 1;
}
// Units of each KV head are gone through once for each so many query heads.
inline int32_t DecodePasses(int32_t n_heads, int32_t n_kv_heads) {
  const int32_t rows = 8 * DecodeRowTiles(n_heads, n_kv_heads);
  return static_cast<int32_t>(CeilDiv(n_heads / n_kv_heads, rows));
}

// Memory that a model's attention calls share.
struct AttentionMemory {
  float* states;      // results of parts of the keys
  int32_t* counters;  // zero between calls
  uint32_t* tickets;  // [1], likewise: how many shares each side has taken, 16 bits each
};

struct AttentionSetup {
  // Every unit's result is kept apart and merged in their order, so that a row's result depends on
  // its own position alone. Else units are shared out and merged as they fall (DecodeShare).
  bool fixed_units = false;
  int32_t unit_blocks = 1;              // fixed: a multiple of kKeyTileBlocks
  int32_t prefill_rows = kPrefillRows;  // of a tile; kHopperPackedRows: HopperPackedPrefill's
};

// Sizes of AttentionMemory for a model of these heads.
struct AttentionNeeds {
  int64_t n_floats = 0;
  int64_t n_counters = 0;
};
AttentionNeeds NeedsOf(const Stream& stream, const AttentionSetup& setup, int32_t n_heads,
                       int32_t n_kv_heads, int32_t head_dim, int32_t max_slots, int32_t max_blocks);

// Blocks of the prefill kernel that work at once.
int32_t NPrefillBlocks(const Stream& stream, const AttentionSetup& setup, int32_t head_dim);
int32_t MaxPrefillBlocks(const Stream& stream);  // however many multiprocessors are left to others
// How many states prefill's parts may leave in AttentionMemory of these needs.
int32_t MaxPartStates(const Stream& stream, const AttentionSetup& setup,
                      const AttentionNeeds& needs, int32_t head_dim);

// Whether the tensor-core kernels have this type and head size.
bool HasAttentionTile(DType dtype, int32_t head_dim);

// Decode and prefill of one call on the tensor cores. REQUIRES: HasAttentionTile; `gathered`, room
// for the keys of plan.hopper, where there is one; no sides with fixed units.
cudaError_t TileAttention(const Stream& stream, const AttentionArgs& args,
                          const AttentionPlan& plan, const AttentionSetup& setup,
                          const AttentionMemory& memory, const GatheredKeys& gathered,
                          const KvSides& sides);

// Any type and head size; a warp a row and query head. A row's result depends on its position
// alone.
cudaError_t GenericAttention(const Stream& stream, const AttentionArgs& args,
                             const AttentionPlan& plan);

}  // namespace stagecoach::kernels::cuda
