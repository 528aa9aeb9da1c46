#include "router/scheduler/kv_blocks.h"

#include <algorithm>
#include <limits>
#include <span>

#include "common/check.h"

namespace stagecoach::router {

KvBlocks::KvBlocks(const std::vector<SchedulerConfig::KvGroup>& groups, uint32_t max_chunk_tokens)
    : max_chunk_tokens_(max_chunk_tokens) {
  for (const auto& group : groups) {
    groups_.push_back(
        {static_cast<uint32_t>(group.window), BlockPool(static_cast<uint32_t>(group.n_blocks))});
  }
}

double KvBlocks::FreeFraction() const {
  double least = 1.0;
  for (const Group& group : groups_) {
    least = std::min(least, double{1.0} * group.pool.n_free() / group.pool.n_total());
  }
  return least;
}

uint32_t KvBlocks::MostHeld(int group, uint32_t n_tokens) const {
  const uint32_t all = BlocksFor(n_tokens);
  const uint32_t window = groups_[group].window;
  if (window == 0) return all;
  // A chunk's first row sees window - 1 positions before it; n positions in a row touch at most
  // (n + 14) / 16 + 1 blocks.
  const uint64_t n_visible = uint64_t{window} - 1 + max_chunk_tokens_;
  return static_cast<uint32_t>(
      std::min<uint64_t>(all, (n_visible + kBlockTokens - 2) / kBlockTokens + 1));
}

uint32_t KvBlocks::Reach(const BlockTables& tables) const {
  uint64_t n_blocks = std::numeric_limits<uint32_t>::max() / kBlockTokens;
  for (int g = 0; g < n_groups(); ++g) {
    n_blocks = std::min<uint64_t>(n_blocks, tables[g].ids.size() + groups_[g].pool.n_free());
  }
  return static_cast<uint32_t>(n_blocks * kBlockTokens);
}

void KvBlocks::Grow(BlockTables& tables, uint32_t end, v1::SlotDelta& delta) {
  const size_t n_blocks = BlocksFor(end);
  // All groups of a sequence have tables of one length.
  if (tables.front().ids.size() >= n_blocks) return;
  for (int g = 0; g < n_groups(); ++g) {
    v1::BlockIds& added = *delta.add_new_blocks();
    for (auto& ids = tables[g].ids; ids.size() < n_blocks;) {
      ids.push_back(groups_[g].pool.Take());
      added.add_ids(ids.back());
    }
  }
}

void KvBlocks::ReturnBehindWindows(BlockTables& tables, uint32_t next_position) {
  for (int g = 0; g < n_groups(); ++g) {
    const uint32_t window = groups_[g].window;
    if (window == 0 || next_position + 1 <= window) continue;
    BlockTable& table = tables[g];
    const uint32_t first_seen_block = (next_position + 1 - window) / kBlockTokens;
    const uint32_t n_behind = std::min(first_seen_block, static_cast<uint32_t>(table.ids.size()));
    for (; table.n_returned < n_behind; ++table.n_returned) {
      groups_[g].pool.Return(table.ids[table.n_returned]);
    }
  }
}

void KvBlocks::ReturnAll(BlockTables& tables) {
  for (int g = 0; g < n_groups(); ++g) {
    BlockTable& table = tables[g];
    groups_[g].pool.Return(std::span<const uint32_t>(table.ids).subspan(table.n_returned));
    table.ids.clear();
    table.n_returned = 0;
  }
}

}  // namespace stagecoach::router
