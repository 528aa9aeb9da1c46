#include "router/scheduler/kv_loads.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace stagecoach::router {
namespace {

uint64_t MostBlocks(const SchedulerConfig& config) {
  if (config.kv_scope.empty()) return 0;
  uint64_t most = 0;
  for (const auto& group : config.kv_groups) most = std::max(most, group.n_blocks);
  return most;
}

}  // namespace

KvLoads::KvLoads(const SchedulerConfig& config, const KvBlocks* kv)
    : min_tokens_(static_cast<uint32_t>(config.kv_fetch_min_tokens)),
      most_blocks_(MostBlocks(config)),
      kv_(*kv) {}

bool KvLoads::JoinTwin(Sequence* sequence) {
  const auto found = loads_.find(newest_);
  if (found == loads_.end() || found->second.is_there || found->second.users.empty()) return false;
  const Sequence& twin = *found->second.users.back();
  const bool is_same =
      twin.request->cache_salt == sequence->request->cache_salt &&
      (twin.prompt == sequence->prompt || std::ranges::equal(twin.tokens(), sequence->tokens()));
  if (!is_same) return false;
  sequence->fetch = found->first;
  found->second.users.push_back(sequence);
  return true;
}

KvLoads::Begun KvLoads::Begin(Sequence* sequence, When when, bool has_twin) {
  if (most_blocks_ == 0 || !is_open_) return Begun::kNone;
  if (has_twin && JoinTwin(sequence)) return Begun::kLoads;
  newest_ = 0;
  const std::string& salt = sequence->request->cache_salt;
  const uint32_t end = (sequence->n_tokens() - 1) / kBlockTokens;
  const uint32_t n_missing = end - kv_.NAdoptable(salt, sequence->tokens()) / kBlockTokens;
  if (n_missing == 0 || n_missing * kBlockTokens < min_tokens_) return Begun::kNone;
  const uint64_t most = when == When::kArrival ? most_blocks_ : 2 * most_blocks_;
  if (n_unanswered_ == kMostLoads || n_blocks_ + n_missing > most) return Begun::kBusy;
  auto fetch = std::make_unique<v1::KvFetch>();
  newest_ = ++last_id_;
  fetch->set_id(newest_);
  const uint32_t first = kv_.AskForMissing(salt, sequence->tokens(), *fetch);
  fetches_.push_back(std::move(fetch));
  loads_[newest_] = {.blocks = {.fetch = newest_, .first = first, .end = end}, .users = {sequence}};
  sequence->fetch = newest_;
  ++n_unanswered_;
  n_blocks_ += n_missing;
  return Begun::kLoads;
}

std::vector<Sequence*> KvLoads::Arrive(const v1::KvFetched& fetched) {
  const uint64_t id = fetched.id();
  const auto found = loads_.find(id);
  // Answers of an epoch that is over may come late.
  if (found == loads_.end() || found->second.is_there) return {};
  Load& load = found->second;
  const uint32_t n_asked = load.blocks.end - load.blocks.first;
  const uint32_t n_there = std::min(fetched.n_blocks(), n_asked);
  load.is_there = true;
  load.blocks.end = load.blocks.first + n_there;
  load.blocks.n_host = fetched.n_host_blocks();
  load.blocks.n_disk = fetched.n_disk_blocks();
  --n_unanswered_;
  n_blocks_ -= n_asked - n_there;
  const std::vector<Sequence*> users = load.users;
  if (n_there == 0 || users.empty()) Forget(id);
  return users;
}

void KvLoads::Leave(Sequence* sequence) {
  const uint64_t id = std::exchange(sequence->fetch, 0);
  if (id == 0) return;
  Load& load = loads_.at(id);
  std::erase(load.users, sequence);
  if (load.users.empty() && load.is_there) Forget(id);
}

void KvLoads::Forget(uint64_t id) {
  forgotten_.push_back(id);
  Remove(id);
}

void KvLoads::Remove(uint64_t id) {
  const auto found = loads_.find(id);
  const Load& load = found->second;
  for (Sequence* user : load.users) user->fetch = 0;
  n_blocks_ -= load.blocks.end - load.blocks.first;
  if (!load.is_there) --n_unanswered_;
  loads_.erase(found);
}

std::vector<std::vector<Sequence*>> KvLoads::Close() {
  std::vector<std::vector<Sequence*>> loading;
  while (!loads_.empty()) {
    const Load& load = loads_.begin()->second;
    if (!load.is_there) loading.push_back(load.users);
    Remove(loads_.begin()->first);
  }
  fetches_.clear();
  forgotten_.clear();
  is_open_ = false;
  return loading;
}

StoredBlocks KvLoads::Of(const Sequence& sequence) const {
  if (sequence.fetch == 0) return {};
  const Load& load = loads_.at(sequence.fetch);
  SC_CHECK(load.is_there);
  return load.blocks;
}

bool KvLoads::IsShared(const Sequence& sequence) const {
  return sequence.fetch != 0 && loads_.at(sequence.fetch).users.size() > 1;
}

std::vector<std::unique_ptr<v1::KvFetch>> KvLoads::TakeFetches() {
  return std::exchange(fetches_, {});
}

void KvLoads::TakeForgotten(v1::StepPlan& plan) {
  for (const uint64_t id : std::exchange(forgotten_, {})) plan.add_forgotten_fetches(id);
}

void KvLoads::CheckConsistency() const {
  uint64_t n_blocks = 0;
  size_t n_unanswered = 0;
  for (const auto& [id, load] : loads_) {
    n_blocks += load.blocks.end - load.blocks.first;
    n_unanswered += load.is_there ? 0 : 1;
    SC_CHECK(load.blocks.fetch == id && (!load.is_there || !load.users.empty()));
    for (const Sequence* user : load.users) {
      SC_CHECK(user->fetch == id);
      const auto loaded = user->restores ? Sequence::State::kRunning : Sequence::State::kWaiting;
      SC_CHECK(user->state == (load.is_there ? loaded : Sequence::State::kLoading));
    }
  }
  SC_CHECK(n_blocks == n_blocks_ && n_unanswered == n_unanswered_);
}

}  // namespace stagecoach::router
