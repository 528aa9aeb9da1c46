#include "router/scheduler/kv_events.h"

#include <utility>

#include "common/check.h"
#include "common/kv_block.h"

namespace stagecoach::router {

uint64_t EventHash(const BlockKey& key) {
  uint64_t hash = 0;
  for (size_t i = key.size() - sizeof(hash); i < key.size(); ++i) hash = hash << 8 | key[i];
  return hash | uint64_t{1} << 63;
}

size_t NBlocksOf(const KvEvents& events) {
  size_t n = 0;
  for (const KvEvent& event : events) {
    if (const auto* stored = std::get_if<KvBlocksStored>(&event)) n += stored->hashes.size();
    if (const auto* removed = std::get_if<KvBlocksRemoved>(&event)) n += removed->hashes.size();
  }
  return n;
}

void AddStored(const KvBlockStored& block, KvEvents& events) {
  SC_CHECK(block.tokens.size() == kKvBlockTokens);
  auto* last = events.empty() ? nullptr : std::get_if<KvBlocksStored>(&events.back());
  if (last == nullptr || !block.parent || last->hashes.back() != *block.parent) {
    last = &std::get<KvBlocksStored>(
        events.emplace_back(KvBlocksStored{.hashes = {}, .parent = block.parent, .tokens = {}}));
  }
  last->hashes.push_back(block.hash);
  last->tokens.insert(last->tokens.end(), block.tokens.begin(), block.tokens.end());
}

void KvEventLog::Stored(const KvBlockStored& block) {
  if (!has_lost_) AddStored(block, events_);
}

void KvEventLog::Removed(uint64_t hash) {
  if (has_lost_) return;
  auto* last = events_.empty() ? nullptr : std::get_if<KvBlocksRemoved>(&events_.back());
  if (last == nullptr) {
    last = &std::get<KvBlocksRemoved>(events_.emplace_back(KvBlocksRemoved{}));
  }
  last->hashes.push_back(hash);
}

void KvEventLog::Cleared() {
  if (has_lost_) return;
  // Nothing that happened before matters any more.
  events_ = {KvCacheCleared{}};
}

void KvEventLog::Flush(absl::FunctionRef<KvEvents()> all) {
  if (has_lost_) {
    if (!sink_.HasRoom()) return;
    events_ = {KvCacheCleared{}};
    for (KvEvent& event : all()) events_.push_back(std::move(event));
    has_lost_ = false;
  }
  if (events_.empty()) return;
  has_lost_ = !sink_.Publish(std::exchange(events_, {}));
}

}  // namespace stagecoach::router
