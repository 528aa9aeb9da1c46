// The KV blocks of all groups, and the block tables of sequences.
//
// Block i of a table holds positions [16 i, 16 i + 16). In a window group the blocks behind the
// window are returned to the pool; the table's index stays logical, so stages need not be told:
// they never read behind the window.
#pragma once

#include <cstdint>
#include <vector>

#include "router/scheduler/block_pool.h"
#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

inline constexpr uint32_t kBlockTokens = 16;

constexpr uint32_t BlocksFor(uint32_t n_tokens) {
  return (n_tokens + kBlockTokens - 1) / kBlockTokens;
}

// One sequence's blocks in one KV group.
struct BlockTable {
  std::vector<uint32_t> ids;  // by logical index; entries below n_returned are another's by now
  uint32_t n_returned = 0;    // blocks at the front that fell behind the window

  uint32_t n_held() const { return static_cast<uint32_t>(ids.size()) - n_returned; }
};

using BlockTables = std::vector<BlockTable>;  // by KV group

// Not thread-safe.
class KvBlocks {
 public:
  // `max_chunk_tokens`: the most positions of one sequence in one step.
  KvBlocks(const std::vector<SchedulerConfig::KvGroup>& groups, uint32_t max_chunk_tokens);

  int n_groups() const { return static_cast<int>(groups_.size()); }
  uint32_t window(int group) const { return groups_[group].window; }
  uint32_t n_total(int group) const { return groups_[group].pool.n_total(); }
  uint32_t n_free(int group) const { return groups_[group].pool.n_free(); }
  // Of the group that has the least.
  double FreeFraction() const;

  // The most blocks of a group that a sequence holds at once on its way to n_tokens positions.
  uint32_t MostHeld(int group, uint32_t n_tokens) const;

  // Positions [0, Reach) can be covered with the blocks that are free now.
  uint32_t Reach(const BlockTables& tables) const;

  // Takes the blocks that positions below `end` still lack, and appends them to the tables and to
  // `delta`, which names no group when none lacks any: most decodes. REQUIRES: end <=
  // Reach(tables).
  void Grow(BlockTables& tables, uint32_t end, v1::SlotDelta& delta);

  // Returns the blocks that no row at `next_position` or later can see. The rows of the step that
  // ends there still read them, so this is called when all of that step's blocks are taken.
  void ReturnBehindWindows(BlockTables& tables, uint32_t next_position);

  void ReturnAll(BlockTables& tables);

 private:
  struct Group {
    uint32_t window;  // tokens; 0: full attention
    BlockPool pool;
  };
  std::vector<Group> groups_;
  uint32_t max_chunk_tokens_;
};

}  // namespace stagecoach::router
