// The KV blocks of all groups, and the block tables of sequences.
//
// Block i of a table holds positions [16 i, 16 i + 16). In a window group the blocks behind the
// window are returned to the pool; the table's index stays logical, so stages need not be told:
// they never read behind the window.
//
// Full blocks whose tokens are known are remembered, also when nobody holds them any more, until
// they are taken for something else: a sequence that begins with the same tokens adopts them. Every
// stage carries out plans in order, and of one step all rows write before any reads, so a block may
// be adopted as soon as the row that fills it is planned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/scheduler/block_pool.h"
#include "router/scheduler/prefix_tree.h"
#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

inline constexpr uint32_t kBlockTokens = PrefixTree::kBlockTokens;

constexpr uint32_t BlocksFor(uint32_t n_tokens) {
  return (n_tokens + kBlockTokens - 1) / kBlockTokens;
}

// One sequence's blocks in one KV group.
struct BlockTable {
  std::vector<uint32_t> ids;  // by logical index; entries below n_returned mean nothing
  uint32_t n_returned = 0;    // blocks at the front that fell behind the window
  uint32_t n_told = 0;        // that a plan has named

  uint32_t n_held() const { return static_cast<uint32_t>(ids.size()) - n_returned; }
};

using BlockTables = std::vector<BlockTable>;  // by KV group

// How far a sequence's blocks are remembered.
struct RememberedPrefix {
  PrefixTree::Node* node = nullptr;  // of the last block, pinned
  uint32_t n_blocks = 0;
};

// Not thread-safe.
class KvBlocks {
 public:
  // `max_chunk_tokens`: the most positions of one sequence in one step. Unless `remembers`, nobody
  // adopts anything.
  KvBlocks(const std::vector<SchedulerConfig::KvGroup>& groups, uint32_t max_chunk_tokens,
           bool remembers = true);

  int n_groups() const { return static_cast<int>(groups_.size()); }
  uint32_t window(int group) const { return groups_[group].window; }
  uint32_t n_total(int group) const { return groups_[group].pool.n_total(); }
  uint32_t n_free(int group) const { return groups_[group].pool.n_free(); }
  uint32_t n_holders(int group, uint32_t id) const { return groups_[group].pool.n_holders(id); }
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

  // Puts into the tables, which are empty, the remembered blocks of as many of the first tokens as
  // can be: at least one token is left. Returns how many tokens they hold.
  uint32_t Adopt(const std::string& salt, std::span<const int32_t> tokens, BlockTables& tables,
                 RememberedPrefix& prefix);
  // How many that would be.
  uint32_t NAdoptable(const std::string& salt, std::span<const int32_t> tokens) const {
    return static_cast<uint32_t>(UsablePath(salt, tokens).size()) * kBlockTokens;
  }
  // How often some sequences hold blocks, by group and id.
  using Holds = std::vector<absl::flat_hash_map<uint32_t, uint32_t>>;
  void CountHolds(const BlockTables& tables, Holds& holds) const;
  // Blocks that were free without these holds, but for those that are.
  uint32_t NFreed(int group, const Holds& holds) const;
  // The most free blocks that a sequence takes on its way to n_tokens positions.
  uint32_t MostTaken(int group, const BlockTable& table, uint32_t n_tokens) const;
  // The same, by group, of one that has not begun and may adopt, if these holds were none.
  std::vector<uint32_t> MostTakenOfNew(const std::string& salt, std::span<const int32_t> tokens,
                                       uint32_t n_tokens, const Holds& gone) const;
  // Remembers the full blocks of `tokens`, which are those that the tables' blocks hold.
  void Remember(const std::string& salt, std::span<const int32_t> tokens, const BlockTables& tables,
                RememberedPrefix& prefix);

  // Returns the blocks that no row at `next_position` or later can see. The rows of the step that
  // ends there still read them, so this is called when all of that step's blocks are taken.
  void ReturnBehindWindows(BlockTables& tables, uint32_t next_position);

  void ReturnAll(BlockTables& tables, RememberedPrefix& prefix);

 private:
  // Remembered blocks of the first tokens that suffice for what comes after them.
  std::vector<PrefixTree::Node*> UsablePath(const std::string& salt,
                                            std::span<const int32_t> tokens) const;
  // The first block that rows at `next_position` and later see.
  uint32_t FirstSeen(int group, uint32_t next_position) const;
  void Return(int group, uint32_t id) { groups_[group].pool.Return(id, tree_.Has(group, id)); }

  struct Group {
    uint32_t window;  // tokens; 0: full attention
    BlockPool pool;
  };
  std::vector<Group> groups_;
  uint32_t max_chunk_tokens_;
  bool remembers_;
  PrefixTree tree_;
};

}  // namespace stagecoach::router
