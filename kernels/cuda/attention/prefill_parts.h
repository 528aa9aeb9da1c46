// Distribution of a step's prefill attention over the CTAs of its kernel. Runs on the host.
//
// If a few rows follow a long context, most SMs stay idle unless the keys are split as well.
// Source: T. Dao, D. Haziza, F. Massa, G. Sizov, "Flash-Decoding for long-context inference", 2023.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/kv_block.h"

namespace stagecoach::kernels::cuda {

// Granularity of the split along the keys.
inline constexpr int32_t kKeyTileBlocks = 4;
inline constexpr int32_t kKeyTile = kKeyTileBlocks * kKvBlockTokens;

// The rows of a sequence for the query heads of one KV head are numbered in the order (token,
// head). A tile has AttentionSetup::prefill_rows of them, from first_row, and the key tiles that
// any of them sees.
struct PrefillTile {
  int32_t seq, first_row;
  int32_t first_key_tile, end_key_tile;
};

// A tile's rows for one KV head against some of its keys.
struct alignas(16) PrefillPart {
  int32_t seq, first_row, kv_head;
  int32_t first_key_tile, end_key_tile;
  int32_t state;  // index of the result's state; -1: the part has all keys and writes the output
  int32_t keeps_units;  // fixed units: one state per unit, from `state` on
  int32_t unused;
};

// Merges consecutive states, in order, into the output of a tile's rows for one KV head.
struct alignas(16) PrefillMerge {
  int32_t seq, first_row, kv_head;
  int32_t first_state, n_states;
  int32_t unused[3];
};

struct PrefillShape {
  int32_t n_blocks = 1;
  int32_t n_kv_heads = 1;
  // Fixed units of this many key tiles: cuts are only allowed between units. 0: cuts are allowed
  // anywhere.
  int32_t unit_tiles = 0;
  int32_t max_states = 0;
};

struct PrefillShares {
  std::vector<int32_t> starts;       // [shape.n_blocks + 1]: first part of each CTA
  std::vector<PrefillPart> parts;    // at most tiles * n_kv_heads + n_blocks
  std::vector<PrefillMerge> merges;  // at most n_blocks
};

// Keeps whole tiles if they load all CTAs about equally; else it also cuts along the keys.
PrefillShares SharePrefill(std::span<const PrefillTile> tiles, const PrefillShape& shape);

}  // namespace stagecoach::kernels::cuda
