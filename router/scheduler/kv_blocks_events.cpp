// The part of KvBlocks that tells which remembered blocks it gains and loses.
//
// Only one KV group is told of: the first with full attention, or the first one. A prefix is usable
// only if that group has all its blocks. Whether the other groups still have the blocks of their
// windows before its end, the events do not say, so an indexer may expect too much of them.
//
// Blocks of sequences with a salt are not told of. Indexers name blocks by their tokens, so they
// would send requests without the salt here, which find nothing.
#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "router/scheduler/kv_blocks.h"

namespace stagecoach::router {

namespace {

KvBlockStored AsStored(const PrefixTree::Node& node) {
  KvBlockStored block{.hash = EventHash(node.key()), .parent = {}, .tokens = node.tokens()};
  if (!node.parent()->is_root()) block.parent = EventHash(node.parent()->key());
  return block;
}

}  // namespace

int KvBlocks::ToldGroup(const std::vector<SchedulerConfig::KvGroup>& groups) {
  const auto full = std::find_if(groups.begin(), groups.end(),
                                 [](const auto& group) { return group.window == 0; });
  return full == groups.end() ? 0 : static_cast<int>(full - groups.begin());
}

void KvBlocks::TellStored(int group, const PrefixTree::Node& node) {
  if (events_ == nullptr || group != told_group_ || node.salted()) return;
  events_->Stored(AsStored(node));
}

void KvBlocks::Forget(int group, uint32_t id) {
  if (events_ != nullptr && group == told_group_) {
    const PrefixTree::Node& node = tree_.NodeOf(group, id);
    if (!node.salted()) events_->Removed(EventHash(node.key()));
  }
  tree_.Forget(group, id);
}

KvEvents KvBlocks::AllStored() const {
  KvEvents events;
  absl::flat_hash_set<const PrefixTree::Node*> seen;
  std::vector<const PrefixTree::Node*> path;
  for (uint32_t id = 0; id < n_total(told_group_); ++id) {
    if (!tree_.Has(told_group_, id)) continue;
    const PrefixTree::Node* node = &tree_.NodeOf(told_group_, id);
    if (node->salted()) continue;
    for (; !node->is_root() && seen.insert(node).second; node = node->parent()) {
      path.push_back(node);
    }
    // Parents first.
    for (; !path.empty(); path.pop_back()) {
      if (path.back()->block(told_group_) != PrefixTree::kNoBlock) {
        AddStored(AsStored(*path.back()), events);
      }
    }
  }
  return events;
}

void KvBlocks::PublishEvents() {
  if (events_ != nullptr) events_->Flush([this] { return AllStored(); });
}

void KvBlocks::TellGone() {
  if (events_ != nullptr) events_->Cleared();
}

}  // namespace stagecoach::router
