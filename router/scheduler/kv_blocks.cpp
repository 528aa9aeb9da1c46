#include "router/scheduler/kv_blocks.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace stagecoach::router {

namespace {

std::vector<uint32_t> NBlocks(const std::vector<SchedulerConfig::KvGroup>& groups,
                              std::optional<uint32_t> n_saved_states) {
  std::vector<uint32_t> n_blocks;
  for (const auto& group : groups) n_blocks.push_back(static_cast<uint32_t>(group.n_blocks));
  if (n_saved_states) n_blocks.push_back(*n_saved_states);
  return n_blocks;
}

}  // namespace

KvBlocks::KvBlocks(const std::vector<SchedulerConfig::KvGroup>& groups, uint32_t max_chunk_tokens,
                   bool remembers, const std::string& kv_scope, const KvEventOptions& events,
                   std::optional<uint32_t> n_saved_states)
    : max_chunk_tokens_(max_chunk_tokens),
      remembers_(remembers),
      has_store_(!kv_scope.empty()),
      told_group_(ToldGroup(groups)),
      events_(events.sink == nullptr ? nullptr : std::make_unique<KvEventLog>(events.sink)),
      tree_(NBlocks(groups, n_saved_states), has_store_ ? kv_scope : events.scope) {
  if (n_saved_states)
    states_.emplace(BlockPool(*n_saved_states), std::vector<uint64_t>(*n_saved_states));
  SC_CHECK(events_ == nullptr || !tree_.scope().empty());
  for (const auto& group : groups) {
    groups_.push_back({group.window, BlockPool(static_cast<uint32_t>(group.n_blocks)),
                       std::vector<uint64_t>(group.n_blocks)});
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
  const KeyWindow window = groups_[group].window;
  if (window == 0) return all;
  // A chunk's first row reads at most size - 1 positions before it, and so does the oldest decode
  // in flight. n consecutive positions touch at most (n + 14) / 16 + 1 blocks.
  const uint64_t n_visible =
      static_cast<uint64_t>(window.size) - 1 + std::max(max_chunk_tokens_, kMostDecodes + 1);
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

uint32_t KvBlocks::Take(int group) {
  const BlockPool::Taken taken = groups_[group].pool.Take();
  if (taken.was_kept) Forget(group, taken.id);
  return taken.id;
}

void KvBlocks::Grow(BlockTables& tables, uint32_t end, v1::SlotDelta& delta) {
  const size_t n_blocks = BlocksFor(end);
  // All of a sequence's tables have the same length.
  if (tables.front().n_told >= n_blocks) return;
  for (int g = 0; g < n_groups(); ++g) {
    BlockTable& table = tables[g];
    while (table.ids.size() < n_blocks) table.ids.push_back(Take(g));
    delta.add_new_blocks()->mutable_ids()->Add(table.ids.begin() + table.n_told, table.ids.end());
    table.n_told = static_cast<uint32_t>(table.ids.size());
  }
}

uint32_t KvBlocks::FirstSeen(int group, uint32_t next_position) const {
  const int32_t first = groups_[group].window.First(static_cast<int32_t>(next_position));
  return static_cast<uint32_t>(first) / kBlockTokens;
}

std::vector<PrefixTree::Node*> KvBlocks::UsablePath(const std::string& salt,
                                                    std::span<const int32_t> tokens) const {
  auto path = tree_.Find(salt, tokens.first(tokens.size() - 1));
  size_t n_usable = 0;
  std::vector<uint32_t> after_gap(groups_.size(), 0);  // from this block on, all are remembered
  for (uint32_t n = 1; n <= path.size(); ++n) {
    bool is_usable = true;
    for (int g = 0; g < n_groups(); ++g) {
      if (path[n - 1]->block(g) == PrefixTree::kNoBlock) after_gap[g] = n;
      is_usable = is_usable && after_gap[g] <= FirstSeen(g, n * kBlockTokens);
    }
    if (states_) is_usable = is_usable && HasUsableState(*path[n - 1]);
    if (is_usable) n_usable = n;
  }
  path.resize(n_usable);
  return path;
}

uint32_t KvBlocks::Adopt(const std::string& salt, std::span<const int32_t> tokens,
                         BlockTables& tables, RememberedPrefix& prefix) {
  const std::vector<PrefixTree::Node*> path = UsablePath(salt, tokens);
  if (path.empty()) return 0;
  const auto n = static_cast<uint32_t>(path.size());
  for (int g = 0; g < n_groups(); ++g) {
    BlockTable& table = tables[g];
    SC_CHECK(table.ids.empty());
    // Blocks behind the window have no id; only their number counts.
    table.n_returned = FirstSeen(g, n * kBlockTokens);
    table.ids.assign(table.n_returned, 0);
    for (uint32_t i = table.n_returned; i < n; ++i) {
      table.ids.push_back(path[i]->block(g));
      groups_[g].pool.Share(table.ids.back());
    }
  }
  SC_CHECK(prefix.node == nullptr);
  prefix = {path.back(), n};
  tree_.Pin(prefix.node);
  return n * kBlockTokens;
}

void KvBlocks::CountHolds(const BlockTables& tables, Holds& holds) const {
  holds.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockTable& table = tables[g];
    for (size_t i = table.n_returned; i < table.ids.size(); ++i) ++holds[g][table.ids[i]];
  }
}

uint32_t KvBlocks::NFreed(int group, const Holds& holds) const {
  if (holds.empty()) return 0;
  uint32_t n = 0;
  for (const auto& [id, n_holds] : holds[group]) n += n_holds == n_holders(group, id) ? 1 : 0;
  return n;
}

uint32_t KvBlocks::MostTaken(int group, const BlockTable& table, uint32_t n_tokens) const {
  const auto n_there = static_cast<uint32_t>(table.ids.size());
  const uint32_t n_missing = BlocksFor(n_tokens) > n_there ? BlocksFor(n_tokens) - n_there : 0;
  if (window(group) == 0) return n_missing;
  // Its own blocks become free behind the window; shared ones do not.
  uint32_t n_own = 0;
  for (uint32_t i = table.n_returned; i < n_there; ++i) {
    n_own += n_holders(group, table.ids[i]) == 1 ? 1 : 0;
  }
  const uint32_t n_most = MostHeld(group, n_tokens);
  return std::min(n_missing, n_most > n_own ? n_most - n_own : 0);
}

std::vector<uint32_t> KvBlocks::MostTakenOfNew(const std::string& salt,
                                               std::span<const int32_t> tokens, uint32_t n_tokens,
                                               const Holds& gone) const {
  const std::vector<PrefixTree::Node*> path = UsablePath(salt, tokens);
  const auto n = static_cast<uint32_t>(path.size());
  std::vector<uint32_t> most_taken;
  for (int g = 0; g < n_groups(); ++g) {
    uint32_t n_to_take = BlocksFor(n_tokens) - n;
    for (uint32_t i = FirstSeen(g, n * kBlockTokens); i < n; ++i) {
      const uint32_t id = path[i]->block(g);
      uint32_t n_gone = 0;
      if (!gone.empty()) {
        const auto holds = gone[g].find(id);
        if (holds != gone[g].end()) n_gone = holds->second;
      }
      n_to_take += n_holders(g, id) == n_gone ? 1 : 0;
    }
    most_taken.push_back(std::min(MostHeld(g, n_tokens), n_to_take));
  }
  return most_taken;
}

void KvBlocks::Remember(const std::string& salt, std::span<const int32_t> tokens,
                        const BlockTables& tables, RememberedPrefix& prefix, uint64_t step,
                        Source source, uint64_t owner) {
  const size_t n_full = tokens.size() / kBlockTokens;
  if (!remembers_ || prefix.n_blocks >= n_full) return;
  if (prefix.node == nullptr) prefix.node = tree_.PinRoot(salt);
  while (prefix.n_blocks < n_full) {
    const uint32_t i = prefix.n_blocks++;
    const auto of_block = tokens.subspan(i * kBlockTokens, kBlockTokens);
    prefix.node = tree_.MovePin(prefix.node, of_block);
    int n_set = 0;
    for (int g = 0; g < n_groups(); ++g) {
      // Another sequence may have computed the same tokens and registered its block first.
      if (prefix.node->block(g) != PrefixTree::kNoBlock || i < tables[g].n_returned) continue;
      tree_.SetBlock(prefix.node, g, tables[g].ids[i]);
      TellStored(g, *prefix.node);
      groups_[g].filled_by[tables[g].ids[i]] = step;
      ++n_set;
    }
    // The store has the block already if the tree had it for some of the groups.
    const bool is_new = n_set == n_groups() && source == Source::kComputed;
    if (is_new && has_store_) Save(*prefix.node, step, owner);
  }
}

void KvBlocks::ReturnBehindWindows(BlockTables& tables, uint32_t next_position) {
  for (int g = 0; g < n_groups(); ++g) {
    BlockTable& table = tables[g];
    const uint32_t n_behind =
        std::min(FirstSeen(g, next_position), static_cast<uint32_t>(table.ids.size()));
    for (; table.n_returned < n_behind; ++table.n_returned) {
      Return(g, table.ids[table.n_returned]);
    }
  }
}

void KvBlocks::ReturnAll(BlockTables& tables, RememberedPrefix& prefix) {
  for (int g = 0; g < n_groups(); ++g) {
    BlockTable& table = tables[g];
    // From the last to the first: the pool reuses the longest free block first, and more sequences
    // share the first blocks.
    for (size_t i = table.ids.size(); i > table.n_returned; --i) Return(g, table.ids[i - 1]);
    table = {};
  }
  tree_.Unpin(prefix.node);
  prefix = {};
}

void KvBlocks::ForgetAfter(uint64_t step) {
  saves_.clear();
  for (uint32_t id = 0; states_ && id < states_->pool.n_total(); ++id) {
    if (!tree_.Has(state_group(), id) || states_->saved_by[id] <= step) continue;
    ForgetState(id);
    states_->pool.Discard(id);
  }
  for (int g = 0; g < n_groups(); ++g) {
    Group& group = groups_[g];
    for (uint32_t id = 0; id < group.pool.n_total(); ++id) {
      if (!tree_.Has(g, id) || group.filled_by[id] <= step) continue;
      Forget(g, id);
      if (group.pool.n_holders(id) == 0) group.pool.Discard(id);
    }
  }
}

bool KvBlocks::TakeBack(BlockTables& tables, RememberedPrefix& prefix, uint32_t position) {
  for (int g = 0; g < n_groups(); ++g) {
    if (tables[g].n_returned > FirstSeen(g, position)) return false;
  }
  for (int g = 0; g < n_groups(); ++g) {
    BlockTable& table = tables[g];
    for (; table.ids.size() > BlocksFor(position); table.ids.pop_back())
      Return(g, table.ids.back());
    table.n_told = 0;
  }
  // The tree may have forgotten nodes of this path, so it is walked again.
  tree_.Unpin(prefix.node);
  prefix = {};
  return true;
}

void KvBlocks::ForgetAll() {
  saves_.clear();
  for (int g = 0; g < n_groups(); ++g) {
    BlockPool& pool = groups_[g].pool;
    SC_CHECK(pool.n_free() == pool.n_total());
    for (uint32_t n = pool.n_total(); n > 0; --n) {
      const BlockPool::Taken taken = pool.Take();
      if (taken.was_kept) Forget(g, taken.id);
    }
    for (uint32_t id = pool.n_total(); id > 0; --id) pool.Return(id - 1, /*keep=*/false);
  }
  for (uint32_t id = 0; states_ && id < states_->pool.n_total(); ++id) {
    if (!tree_.Has(state_group(), id)) continue;
    ForgetState(id);
    states_->pool.Discard(id);
  }
  TellGone();
}

}  // namespace stagecoach::router
