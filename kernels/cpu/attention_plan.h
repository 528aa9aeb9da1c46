// How attention is cut into tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace stagecoach::kernels {

// Keys whose partial softmax is computed on its own and then merged, in order. A split is a range
// of absolute positions, so a row meets the same splits whatever it shares the step with and
// however its prompt was chunked; and a long context can be shared by all threads.
inline constexpr int32_t kSplitTokens = 256;

// Consecutive rows of one sequence with the query heads of one KV head.
struct AttentionTile {
  int32_t seq;
  int32_t kv_head;
  int32_t first_row;       // of the step
  int32_t first_position;  // of first_row
  int32_t n_tokens;
  int32_t first_split;  // that any of the rows sees
  int32_t n_splits;
  size_t first_partial;  // splits of the tiles before this one
};

struct AttentionPlan {
  std::vector<AttentionTile> tiles;
  int32_t tile_tokens = 0;
  // Too few tiles for the threads: the splits of a tile are tasks of their own.
  bool by_split = false;
  // Which tile a split belongs to; only when by_split.
  std::vector<int32_t> tile_of_split;
};

// The oldest position that `position` sees.
constexpr int32_t FirstVisible(int32_t position, int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// Rewrites `plan`, keeping its memory. Within a sequence the latest rows, which see the most, come
// first.
void PlanAttention(const AttentionArgs& args, int n_threads, AttentionPlan* plan);

}  // namespace stagecoach::kernels
