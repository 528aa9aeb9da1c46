// The part of SchedulerState for sequences that get KV blocks from the store.
#include <algorithm>

#include "common/check.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

bool SchedulerState::Load(Sequence* sequence, bool has_twin) {
  if (sequence->request->past || !MayAdopt(*sequence)) return false;
  const KvLoads::Begun begun = loads_.Begin(sequence, KvLoads::When::kArrival, has_twin);
  if (begun == KvLoads::Begun::kBusy) sequence->loads_in_turn = true;
  if (begun != KvLoads::Begun::kLoads) return false;
  sequence->state = Sequence::State::kLoading;
  waiting_.AddLoading(sequence);
  return true;
}

uint32_t SchedulerState::NAvailable(const Sequence& sequence) const {
  const uint32_t cached = kv_.NAdoptable(sequence.request->cache_salt, sequence.tokens());
  const StoredBlocks stored = loads_.Of(sequence);
  const bool continues = stored.first * kBlockTokens <= cached;
  return continues ? std::max(cached, stored.end * kBlockTokens) : cached;
}

KvLoads::Begun SchedulerState::LoadInTurn(Sequence* sequence) {
  using Begun = KvLoads::Begun;
  if (!loads_.is_on() || !MayAdopt(*sequence)) return Begun::kNone;
  // The device may have lost blocks while the sequence waited, also those that its fetch continues.
  // Loading once more is enough: its turn has come.
  if (!sequence->has_reloaded &&
      NAvailable(*sequence) + config_.kv_fetch_min_tokens <= sequence->n_available) {
    sequence->has_reloaded = true;
    loads_.Leave(sequence);
    sequence->loads_in_turn = true;
  }
  if (!sequence->loads_in_turn) return Begun::kNone;
  const Begun begun = loads_.Begin(sequence, KvLoads::When::kTurn);
  if (begun == Begun::kBusy && loads_.has_unanswered()) return begun;
  sequence->loads_in_turn = false;
  if (begun != Begun::kLoads) return Begun::kNone;
  waiting_.Remove(sequence);
  sequence->state = Sequence::State::kLoading;
  waiting_.AddLoading(sequence);
  return begun;
}

void SchedulerState::QueueLoaded(const std::vector<Sequence*>& loaded) {
  for (Sequence* sequence : loaded) {
    waiting_.RemoveLoading(sequence);
    sequence->state = Sequence::State::kWaiting;
    Queue(sequence, /*has_twin=*/sequence != loaded.front());
  }
}

void SchedulerState::Fetched(const v1::KvFetched& fetched) { QueueLoaded(loads_.Arrive(fetched)); }

void SchedulerState::AbandonLoads() {
  for (Sequence* sequence : std::vector(restoring_)) LetWait(sequence, /*keep=*/false);
  for (const auto& loading : loads_.Close()) QueueLoaded(loading);
}

void SchedulerState::BeginRestore(Sequence* sequence) {
  const StoredBlocks stored = loads_.Of(*sequence);
  if (stored.fetch == 0) return;
  const uint32_t end =
      kv_.Restore(stored, sequence->tables, sequence->restores.emplace(), sequence->states) *
      kBlockTokens;
  if (sequence->states.pending) sequence->from_state = sequence->states.pending->id;
  restoring_.push_back(sequence);
  SC_CHECK(end >= sequence->next_position && end < sequence->n_registered);
  const uint32_t n_there = sequence->next_position / kBlockTokens;
  const uint32_t n_restored = end - sequence->next_position;
  sequence->next_position = end;
  sequence->n_to_prefill -= n_restored;
  if (sequence->n_admissions == 1) {
    sequence->times.n_cached_tokens += n_restored;
    stored.Count(n_there, end / kBlockTokens, sequence->times.stored);
  }
  n_stored_hits_ += n_restored;
}

bool SchedulerState::MayRestoreBeside(const Sequence& sequence) const {
  return sequence.restores && !sequence.restores->empty() && !loads_.IsShared(sequence);
}

void SchedulerState::RestoreBeside(v1::StepPlan& plan) {
  int32_t n_left = config_.kv_blocks_beside;
  for (Sequence* sequence : restoring_) {
    KvRestores& restores = *sequence->restores;
    const int n = std::min(n_left, restores.size());
    for (int i = 0; i < n; ++i) {
      v1::KvRestore& restore = *plan.add_restores();
      restore = std::move(restores[i]);
      restore.set_beside(true);
    }
    restores.DeleteSubrange(0, n);
    n_left -= n;
  }
}

void SchedulerState::FinishRestore(Sequence* sequence, v1::StepPlan& plan) {
  if (!sequence->restores) return;
  for (v1::KvRestore& restore : *sequence->restores) *plan.add_restores() = std::move(restore);
  // A twin adopts what is restored now, so the stages need not hold it for it.
  loads_.Forget(sequence->fetch);
  StopRestore(sequence);
  sequence->first_step = n_steps_ + 1;
  kv_.Remember(sequence->request->cache_salt, sequence->tokens().first(sequence->next_position),
               sequence->tables, sequence->prefix, sequence->first_step, KvBlocks::Source::kStore);
  kv_.RememberRestoredState(sequence->prefix, sequence->states);
}

void SchedulerState::StopRestore(Sequence* sequence) {
  sequence->restores.reset();
  std::erase(restoring_, sequence);
}

}  // namespace stagecoach::router
