// Split of attention into tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace stagecoach::kernels {

// Keys per split. The partial softmax of a split is computed separately, and splits are merged in
// order. A split is a range of absolute positions. So a row has the same splits for any batch and
// any chunking of its prompt, and all threads can share a long context.
inline constexpr int32_t kSplitTokens = 256;

// Consecutive rows of one sequence, for the query heads of one KV head.
struct AttentionTile {
  int32_t seq;
  int32_t kv_head;
  int32_t first_row;       // in the step
  int32_t first_position;  // position of first_row
  int32_t n_tokens;
  int32_t first_split;  // first split that any of the rows sees
  int32_t n_splits;
  size_t first_partial;  // number of splits in all previous tiles
};

struct AttentionPlan {
  std::vector<AttentionTile> tiles;
  int32_t tile_tokens = 0;
  // If there are too few tiles for the threads, every split of a tile is its own task.
  bool by_split = false;
  // The tile of each split; only filled if by_split.
  std::vector<int32_t> tile_of_split;
};

// Rewrites `plan` and reuses its memory. Within a sequence the latest rows come first, because they
// see the most keys.
void PlanAttention(const AttentionArgs& args, int n_threads, AttentionPlan* plan);

}  // namespace stagecoach::kernels
