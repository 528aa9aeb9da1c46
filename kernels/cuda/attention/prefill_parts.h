// How a step's prefill attention is shared out to the blocks of its kernel; made on the host.
//
// Few rows behind a long context leave most multiprocessors idle unless the keys are shared out,
// too: T. Dao, D. Haziza, F. Massa, G. Sizov, "Flash-Decoding for long-context inference", 2023.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/kv_block.h"

namespace stagecoach::kernels::cuda {

// Keys are shared out so many at a time.
inline constexpr int32_t kKeyTileBlocks = 4;
inline constexpr int32_t kKeyTile = kKeyTileBlocks * kKvBlockTokens;

// A sequence's rows with the query heads of one KV head are counted in the order (token, head): a
// tile is AttentionSetup::prefill_rows of them, from first_row on, and the tiles of keys that any
// of them sees.
struct PrefillTile {
  int32_t seq, first_row;
  int32_t first_key_tile, end_key_tile;
};

// A tile's rows with one KV head against some of its keys.
struct alignas(16) PrefillPart {
  int32_t seq, first_row, kv_head;
  int32_t first_key_tile, end_key_tile;
  int32_t state;  // the number of that of the result; -1: these are all keys, it is the output
  int32_t keeps_units;  // fixed units: each has a state of its own, from `state` on
  int32_t unused;
};

// States that become the output of a tile's rows with one KV head, in their order.
struct alignas(16) PrefillMerge {
  int32_t seq, first_row, kv_head;
  int32_t first_state, n_states;
  int32_t unused[3];
};

struct PrefillShape {
  int32_t n_blocks = 1;
  int32_t n_kv_heads = 1;
  // Fixed units: keys are cut nowhere but between them, tiles of keys each. 0: anywhere.
  int32_t unit_tiles = 0;
  int32_t max_states = 0;
};

struct PrefillShares {
  std::vector<int32_t> starts;       // [shape.n_blocks + 1]: the first of each block's parts
  std::vector<PrefillPart> parts;    // no more than tiles * n_kv_heads + n_blocks
  std::vector<PrefillMerge> merges;  // no more than n_blocks
};

// Where whole tiles keep all blocks about equally busy, they stay whole.
PrefillShares SharePrefill(std::span<const PrefillTile> tiles, const PrefillShape& shape);

}  // namespace stagecoach::kernels::cuda
