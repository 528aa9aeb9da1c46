#include "kernels/cpu/attention_plan.h"

#include <algorithm>

namespace stagecoach::kernels {
namespace {

// Rows (tokens times query heads) that share each read of keys and values: a multiple of every
// register block size.
constexpr int32_t kTileRows = 48;

}  // namespace

void PlanAttention(const AttentionArgs& args, int n_threads, AttentionPlan* plan) {
  plan->tiles.clear();
  plan->tile_of_split.clear();
  plan->tile_tokens = std::max(1, kTileRows / (args.n_heads / args.n_kv_heads));
  size_t n_splits = 0;
  const StepInputs& step = *args.step;
  for (int32_t seq = 0; seq < step.n_seqs; ++seq) {
    const int32_t start = step.seq_starts[seq], n_tokens = step.seq_starts[seq + 1] - start;
    const int32_t n_tiles = (n_tokens + plan->tile_tokens - 1) / plan->tile_tokens;
    for (int32_t tile = n_tiles - 1; tile >= 0; --tile) {
      const int32_t offset = tile * plan->tile_tokens;
      const int32_t tokens = std::min(plan->tile_tokens, n_tokens - offset);
      const int32_t position = step.seq_positions[seq] + offset;
      const int32_t first_split = args.window.First(position) / kSplitTokens;
      const int32_t last_split = (position + tokens - 1) / kSplitTokens;
      for (int32_t kv_head = 0; kv_head < args.n_kv_heads; ++kv_head) {
        plan->tiles.push_back({.seq = seq,
                               .kv_head = kv_head,
                               .first_row = start + offset,
                               .first_position = position,
                               .n_tokens = tokens,
                               .first_split = first_split,
                               .n_splits = last_split - first_split + 1,
                               .first_partial = n_splits});
        n_splits += static_cast<size_t>(last_split - first_split + 1);
      }
    }
  }
  plan->by_split = n_threads > 1 && n_splits > plan->tiles.size() &&
                   plan->tiles.size() < 2 * static_cast<size_t>(n_threads);
  if (!plan->by_split) return;
  for (size_t tile = 0; tile < plan->tiles.size(); ++tile) {
    plan->tile_of_split.insert(plan->tile_of_split.end(),
                               static_cast<size_t>(plan->tiles[tile].n_splits),
                               static_cast<int32_t>(tile));
  }
}

}  // namespace stagecoach::kernels
