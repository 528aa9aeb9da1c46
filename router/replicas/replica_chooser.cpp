#include "router/replicas/replica_chooser.h"

#include <algorithm>
#include <tuple>

#include "common/kv_block.h"

namespace stagecoach::router {
namespace {

// The fewest blocks that a KV group has: so many blocks of prompts the cache remembers at least.
uint64_t NBlocks(const SchedulerConfig& config) {
  const auto least =
      std::min_element(config.kv_groups.begin(), config.kv_groups.end(),
                       [](const auto& a, const auto& b) { return a.n_blocks < b.n_blocks; });
  return least->n_blocks;
}

// The tokens of the prompt that a prefix cache may provide: the last token is always computed.
std::span<const int32_t> Adoptable(const SequenceRequest& request) {
  // Log-probabilities of the prompt and means need the whole prompt.
  if (request.sampling.n_prompt_logprobs() >= 0 || IsMean(request.sampling)) return {};
  return std::span(*request.prompt).first(request.prompt->size() - 1);
}

}  // namespace

ReplicaChooser::ReplicaChooser(const std::vector<SchedulerConfig>& configs) {
  for (const SchedulerConfig& config : configs) {
    Add(config);
    replicas_.back().use = Use::kOpen;
  }
}

void ReplicaChooser::Add(const SchedulerConfig& config) {
  replicas_.push_back({.has_cache = config.prefix_cache,
                       .index = PrefixIndex(NBlocks(config)),
                       .use = Use::kClosed});
}

int ReplicaChooser::RankOf(const Replica& replica) {
  if (replica.use == Use::kClosed) return kGoneRank + 1;
  if (replica.state == PipelineState::kGone) return kGoneRank;
  if (replica.use != Use::kOpen) return kLostRank + 1;
  if (replica.state == PipelineState::kLost) return kLostRank;
  return replica.is_stalled ? 1 : 0;
}

ReplicaChooser::Choice ReplicaChooser::Choose(const SequenceRequest& request, size_t n) {
  PrefixIndex::Blocks blocks;  // of no use if there is no choice
  if (replicas_.size() > 1) blocks = PrefixIndex::BlocksOf(request.cache_salt, Adoptable(request));
  const uint64_t n_tokens =
      request.prompt->size() + (request.past ? request.past->tokens.size() : 0);
  Choice best;
  std::tuple<int, uint64_t, size_t> least;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const Replica& replica = replicas_[i];
    const uint64_t n_missing = n_tokens - replica.index.NRemembered(blocks) * kKvBlockTokens;
    const std::tuple cost(RankOf(replica),
                          n_missing + replica.n_to_prefill + kSequenceTokens * replica.n_sequences,
                          replica.index.n_blocks());
    if (i > 0 && cost >= least) continue;
    least = cost;
    best = {.replica = i, .n_to_prefill = n_missing};
  }
  Replica& chosen = replicas_[best.replica];
  chosen.n_to_prefill += best.n_to_prefill;
  chosen.n_sequences += n;
  if (chosen.has_cache) chosen.index.Use(blocks);
  return best;
}

void ReplicaChooser::SetState(size_t replica, PipelineState state) {
  replicas_[replica].state = state;
  if (state != PipelineState::kWorks) replicas_[replica].index.Clear();
}

bool ReplicaChooser::ShouldLeave(size_t replica) const {
  const Replica& one = replicas_[replica];
  if (one.state == PipelineState::kGone) return HasOther(replica, kGoneRank);
  return one.state == PipelineState::kLost && HasOther(replica, kLostRank);
}

bool ReplicaChooser::HasOther(size_t replica, int rank) const {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (i != replica && RankOf(replicas_[i]) < rank) return true;
  }
  return false;
}

}  // namespace stagecoach::router
