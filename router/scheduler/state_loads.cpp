// The part of SchedulerState for sequences that get KV blocks from the store.
#include "common/check.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

bool SchedulerState::Load(Sequence* sequence, bool has_twin) {
  if (sequence->request->past || !MayAdopt(*sequence)) return false;
  if (!loads_.Begin(sequence, has_twin)) return false;
  sequence->state = Sequence::State::kLoading;
  waiting_.AddLoading(sequence);
  return true;
}

void SchedulerState::QueueLoaded(const std::vector<Sequence*>& loaded) {
  for (Sequence* sequence : loaded) {
    waiting_.RemoveLoading(sequence);
    sequence->state = Sequence::State::kWaiting;
    Queue(sequence, /*has_twin=*/sequence != loaded.front());
  }
}

void SchedulerState::Fetched(uint64_t fetch, uint32_t n_blocks) {
  QueueLoaded(loads_.Arrive(fetch, n_blocks));
}

void SchedulerState::AbandonLoads() {
  for (const auto& loading : loads_.Close()) QueueLoaded(loading);
}

void SchedulerState::Restore(Sequence* sequence, v1::StepPlan& plan) {
  const StoredBlocks stored = loads_.Of(*sequence);
  if (stored.fetch == 0) return;
  // Its twins adopt what is restored now, so the stages need not hold it for them.
  loads_.Forget(stored.fetch);
  const uint32_t end = kv_.Restore(stored, sequence->tables, plan) * kBlockTokens;
  SC_CHECK(end >= sequence->next_position && end < sequence->n_registered);
  const uint32_t n_restored = end - sequence->next_position;
  kv_.Remember(sequence->request->cache_salt, sequence->tokens().first(end), sequence->tables,
               sequence->prefix, sequence->first_step, KvBlocks::Source::kStore);
  sequence->next_position = end;
  sequence->n_to_prefill -= n_restored;
  sequence->times.n_cached_tokens += n_restored;
  sequence->times.n_stored_tokens += n_restored;
  n_stored_hits_ += n_restored;
}

}  // namespace stagecoach::router
