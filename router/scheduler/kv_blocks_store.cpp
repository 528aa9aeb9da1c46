// The part of KvBlocks that saves blocks to the KV store, and restores them from there.
#include <algorithm>
#include <utility>

#include "router/scheduler/kv_blocks.h"

namespace stagecoach::router {

void StoredBlocks::Count(uint32_t begin, uint32_t to, v1::StoredTokens& tokens) const {
  const auto n_in = [&](uint32_t from, uint32_t until) {
    const uint32_t a = std::max(begin, from), b = std::min(to, until);
    return b > a ? (b - a) * kBlockTokens : 0;
  };
  const uint32_t host_end = first + n_host, disk_end = host_end + n_disk;
  tokens.set_host(tokens.host() + n_in(first, host_end));
  tokens.set_disk(tokens.disk() + n_in(host_end, disk_end));
  tokens.set_store(tokens.store() + n_in(disk_end, end));
}

v1::KvSave& KvBlocks::AddSave(const PrefixTree::Node& node, uint64_t step, uint64_t owner) {
  PendingSave& pending = saves_.emplace_back();
  pending.step = step;
  pending.save.set_key(BytesOf(node.key()));
  pending.save.mutable_tokens()->Add(node.tokens().begin(), node.tokens().end());
  pending.save.set_owner(owner);
  return pending.save;
}

void KvBlocks::Save(const PrefixTree::Node& node, uint64_t step, uint64_t owner) {
  v1::KvSave& save = AddSave(node, step, owner);
  for (int g = 0; g < n_groups(); ++g) save.add_blocks(node.block(g));
  if (states_) save.add_blocks(PrefixTree::kNoBlock);
}

void KvBlocks::StoreState(const SavedState& saved, StateMarks& marks, uint64_t owner) {
  if (!has_store_ || saved.position < marks.stored_position + kLeastStoredTokens) return;
  marks.stored_position = saved.position;
  v1::KvSave& save = AddSave(tree_.NodeOf(state_group(), saved.id), saved.step, owner);
  for (int g = 0; g < n_groups(); ++g) save.add_blocks(PrefixTree::kNoBlock);
  save.add_blocks(saved.id);
}

void KvBlocks::TakeSaves(uint64_t step, v1::StepPlan& plan) {
  const auto later = std::stable_partition(
      saves_.begin(), saves_.end(), [step](const PendingSave& one) { return one.step < step; });
  for (auto one = saves_.begin(); one != later; ++one) *plan.add_saves() = std::move(one->save);
  n_saved_ += static_cast<uint64_t>(later - saves_.begin());
  saves_.erase(saves_.begin(), later);
}

uint32_t KvBlocks::AskForMissing(const std::string& salt, std::span<const int32_t> tokens,
                                 v1::KvFetch& fetch) const {
  const std::vector<PrefixTree::Node*> path = UsablePath(salt, tokens);
  const size_t n_full = (tokens.size() - 1) / kBlockTokens;
  BlockKey key = path.empty() ? RootBlockKey(tree_.scope(), salt) : path.back()->key();
  for (size_t i = path.size(); i < n_full; ++i) {
    const auto of_block = tokens.subspan(i * kBlockTokens, kBlockTokens);
    key = ChildBlockKey(key, of_block);
    fetch.add_keys(BytesOf(key));
    fetch.mutable_tokens()->Add(of_block.begin(), of_block.end());
  }
  return static_cast<uint32_t>(path.size());
}

bool KvBlocks::CanRestore(uint32_t n_there, uint32_t end) const {
  for (int g = 0; g < n_groups(); ++g) {
    const uint32_t begin = std::max(n_there, FirstSeen(g, end * kBlockTokens));
    if (groups_[g].pool.n_free() < end - std::min(begin, end) + 1) return false;
  }
  return true;
}

uint32_t KvBlocks::Restore(const StoredBlocks& stored, BlockTables& tables, KvRestores& restores,
                           StateMarks& marks) {
  const auto n_there = static_cast<uint32_t>(tables.front().ids.size());
  if (n_there < stored.first) return n_there;
  uint32_t end = stored.end;
  while (end > n_there && !CanRestore(n_there, end)) --end;
  if (end <= n_there) return n_there;
  if (states_) {
    // There is no state before the last one's.
    const std::optional<uint32_t> state = end == stored.end ? TakeState() : std::nullopt;
    if (!state) return n_there;
    marks.pending = {.id = *state, .position = end * kBlockTokens, .step = step_};
    marks.last_position = marks.stored_position = marks.pending->position;
  }
  // No row of the sequence will read these, and none of its rows is planned yet.
  ReturnBehindWindows(tables, end * kBlockTokens);
  for (int g = 0; g < n_groups(); ++g) {
    BlockTable& table = tables[g];
    const uint32_t first_seen = FirstSeen(g, end * kBlockTokens);
    if (first_seen > n_there) {
      table.ids.resize(first_seen);
      table.n_returned = first_seen;
    }
    while (table.ids.size() < end) table.ids.push_back(Take(g));
  }
  for (uint32_t i = n_there; i < end; ++i) {
    const auto is_read = [i](const BlockTable& table) { return i >= table.n_returned; };
    const bool has_state = states_.has_value() && i + 1 == end;
    if (!has_state && std::none_of(tables.begin(), tables.end(), is_read)) continue;
    v1::KvRestore& restore = *restores.Add();
    restore.set_fetch(stored.fetch);
    restore.set_index(i - stored.first);
    for (const BlockTable& table : tables) {
      restore.add_blocks(is_read(table) ? table.ids[i] : PrefixTree::kNoBlock);
    }
    if (states_) restore.add_blocks(has_state ? marks.pending->id : PrefixTree::kNoBlock);
  }
  return end;
}

}  // namespace stagecoach::router
