#include "router/scheduler/state.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/check.h"
#include "router/scheduler/policies.h"

namespace stagecoach::router {

using Clock = std::chrono::steady_clock;

namespace {

// With one token more than can be in flight, a sequence has passed all positions that were in
// flight in a loss.
constexpr uint32_t kTrialTokens = kMostDecodes + 1;

}  // namespace

SchedulerState::SchedulerState(const SchedulerConfig& config)
    : config_(config),
      kv_(config.kv_groups,
          static_cast<uint32_t>(std::min(config.max_prefill_chunk, config.max_batched_tokens)),
          config.prefix_cache, config.kv_scope, config.kv_events,
          config.is_recurrent ? std::optional(config.n_saved_states()) : std::nullopt),
      loads_(config, &kv_),
      epoch_(config.epoch) {
  for (int32_t slot = config.max_sequences; slot > 0; --slot) {
    free_slots_.push_back(static_cast<uint32_t>(slot - 1));
  }
}

Sequence* SchedulerState::Find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

void SchedulerState::Add(std::unique_ptr<SequenceRequest> request, Clock::time_point submitted,
                         bool has_twin) {
  const SequenceId id = request->id;
  if (request->call == nullptr) request->call = std::make_shared<ClientCall>();
  Tenant* tenant = tenants_.Of(request->account);
  auto sequence =
      std::make_shared<Sequence>(std::move(request), tenant, next_arrival_++, submitted);
  sequence->tables.resize(kv_.n_groups());
  if (sequence->request->past) sequence->loads_in_turn = true;
  tenants_.Enter(tenant);
  if (!has_twin || !Follow(sequence.get())) {
    leader_ = id;
    if (!Load(sequence.get(), has_twin)) Queue(sequence.get(), has_twin);
  }
  JudgeLosses(sequence.get());
  SC_CHECK(sequences_.emplace(id, std::move(sequence)).second);
}

void SchedulerState::Queue(Sequence* sequence, bool has_twin) {
  sequence->n_to_prefill = sequence->n_tokens();
  const bool counts = PrefillBudget::Counts(config_.n_microbatches, config_.plan_ahead);
  if ((counts || loads_.is_on()) && MayAdopt(*sequence))
    sequence->n_available = NAvailable(*sequence);
  if (counts && MayAdopt(*sequence)) {
    const uint32_t of_twin = has_twin && config_.prefix_cache
                                 ? (sequence->n_tokens() - 1) / kBlockTokens * kBlockTokens
                                 : 0;
    sequence->n_to_prefill -= std::max(of_twin, sequence->n_available);
  }
  waiting_.Add(sequence);
}

void SchedulerState::Admit(Sequence* sequence) {
  SC_CHECK(sequence->state == Sequence::State::kWaiting && sequence->n_in_flight == 0);
  SC_CHECK(has_free_slot());
  waiting_.Remove(sequence);
  sequence->OwnTokens();
  sequence->state = Sequence::State::kRunning;
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  sequence->n_registered = sequence->n_tokens();
  sequence->first_step = n_steps_ + 1;
  sequence->next_position = 0;
  if (MayAdopt(*sequence)) {
    sequence->next_position = kv_.Adopt(sequence->request->cache_salt, sequence->tokens(),
                                        sequence->tables, sequence->prefix);
  }
  sequence->from_state.reset();
  sequence->states = {.pending = {},
                      .rolling = {},
                      .last_position = sequence->next_position,
                      .stored_position = sequence->next_position};
  if (config_.is_recurrent && sequence->next_position > 0) {
    sequence->from_state = kv_.StateOf(sequence->prefix);
    SC_CHECK(sequence->from_state.has_value());
  }
  sequence->n_to_prefill = sequence->n_registered - sequence->next_position;
  ++sequence->n_admissions;
  if (!sequence->was_admitted) {
    sequence->was_admitted = true;
    sequence->request->call->begun = true;
    const std::chrono::duration<double, std::milli> queued = Clock::now() - sequence->submitted;
    sequence->times.queue_ms = queued.count();
    sequence->times.n_cached_tokens = sequence->next_position;
    n_prefix_queries_ += config_.prefix_cache ? sequence->n_prompt : 0;
    n_prefix_hits_ += sequence->next_position;
  }
  running_.insert(sequence);
  ++sequence->tenant->n_running;
  sequence->tenant->refused_at.reset();
}

void SchedulerState::Charge(Sequence* sequence, uint64_t n_tokens, bool at_once) {
  if (at_once) {
    waiting_.Charge(sequence->tenant, n_tokens);
  } else {
    sequence->tenant->n_uncharged += n_tokens;
  }
}

void SchedulerState::BeginTurn() {
  if (tenants_.n_active() < 2) return;
  for (Sequence* sequence : running_) sequence->tenant->turn = sequence->tenant->service;
}

bool SchedulerState::MayAdopt(const Sequence& sequence) {
  if (IsMean(sequence.request->sampling)) return false;
  return sequence.request->sampling.n_prompt_logprobs() < 0 ||
         sequence.next_prompt_logprob >= sequence.n_prompt;
}

void SchedulerState::Remember(Sequence* sequence) {
  const size_t n_known = std::min<size_t>(sequence->next_position, sequence->n_tokens());
  kv_.Remember(sequence->request->cache_salt, sequence->tokens().first(n_known), sequence->tables,
               sequence->prefix, sequence->last_step, KvBlocks::Source::kComputed,
               sequence->tenant->kv_owner);
  if (sequence->states.pending) {
    const bool is_rolling = sequence->states.pending->position > sequence->n_registered;
    kv_.RememberState(sequence->prefix, is_rolling, sequence->states, sequence->tenant->kv_owner);
  }
}

void SchedulerState::Vacate(Sequence* sequence, bool keep) {
  SC_CHECK(sequence->running());
  running_.erase(sequence);
  if (--sequence->tenant->n_running == 0) sequence->tenant->turn = sequence->tenant->service;
  if (sequence->restores) {
    loads_.Leave(sequence);
    StopRestore(sequence);
  } else if (keep) {
    Remember(sequence);
    if (config_.is_recurrent) {
      kv_.StoreRollingState(sequence->states, sequence->tenant->kv_owner);
    }
  }
  kv_.DropStates(sequence->states);
  kv_.ReturnAll(sequence->tables, sequence->prefix);
  free_slots_.push_back(sequence->slot);
  if (!std::exchange(sequence->to_register, false)) releases_.push_back(sequence->slot);
}

void SchedulerState::LetWait(Sequence* sequence, bool keep) {
  Vacate(sequence, keep);
  sequence->state = Sequence::State::kWaiting;
  sequence->loads_in_turn = true;
  sequence->has_reloaded = false;
  Queue(sequence);
}

void SchedulerState::Preempt(Sequence* sequence) {
  ++sequence->times.preemptions;
  ++n_preemptions_;
  LetWait(sequence, /*keep=*/true);
}

void SchedulerState::End(Sequence* sequence) {
  if (sequence->running()) {
    Vacate(sequence);
  } else if (sequence->state == Sequence::State::kLoading) {
    waiting_.RemoveLoading(sequence);
  } else {
    waiting_.Remove(sequence);
  }
  loads_.Leave(sequence);
  LeaveLeader(sequence);
  sequence->state = Sequence::State::kEnded;
  ReplaceLeader(*sequence);
  tenants_.Leave(sequence->tenant);
  std::erase_if(suspects_, [sequence](const auto& suspect) { return suspect.get() == sequence; });
  sequences_.erase(sequence->id());
}

void SchedulerState::AppendToken(Sequence* sequence, int32_t token) {
  sequence->own_tokens.push_back(token);
  if (sequence->state == Sequence::State::kWaiting) waiting_.AddToken(sequence);
  ++n_generated_tokens_;
  if (sequence->n_generated() == 1) ReleaseFollowers(*sequence);
}

std::vector<std::shared_ptr<Sequence>> SchedulerState::EndEach(
    std::vector<std::shared_ptr<Sequence>> sequences) {
  std::sort(sequences.begin(), sequences.end(),
            [](const auto& a, const auto& b) { return ServedFirst()(a.get(), b.get()); });
  for (const auto& sequence : sequences) End(sequence.get());
  return sequences;
}

std::vector<std::shared_ptr<Sequence>> SchedulerState::EndCall(const Sequence& one) {
  std::vector<std::shared_ptr<Sequence>> left;
  for (const auto* sequences : {&one.tenant->waiting, &one.tenant->loading}) {
    for (Sequence* other : *sequences) {
      if (other->request->call == one.request->call) left.push_back(other->shared_from_this());
    }
  }
  return EndEach(std::move(left));
}

std::vector<std::shared_ptr<Sequence>> SchedulerState::EndNotBegun() {
  std::vector<std::shared_ptr<Sequence>> not_begun;
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence->request->call->begun) not_begun.push_back(sequence);
  }
  return EndEach(std::move(not_begun));
}

std::vector<std::shared_ptr<Sequence>> SchedulerState::EndAll() {
  std::vector<std::shared_ptr<Sequence>> all;
  for (const auto& [id, sequence] : sequences_) all.push_back(sequence);
  all = EndEach(std::move(all));
  TakeBackInFlight();
  return all;
}

std::vector<std::unique_ptr<SequenceRequest>> SchedulerState::TakeOut(bool with_suspects) {
  SC_CHECK(in_flight_.empty());
  std::vector<std::shared_ptr<Sequence>> leaving;
  for (const auto& [id, sequence] : sequences_) {
    if (with_suspects || !IsSuspect(*sequence)) leaving.push_back(sequence);
  }
  std::vector<std::unique_ptr<SequenceRequest>> requests;
  for (const auto& sequence : EndEach(std::move(leaving))) {
    requests.push_back(sequence->TakeRequest());
  }
  return requests;
}

bool SchedulerState::IsSuspect(const Sequence& sequence) const {
  return std::any_of(suspects_.begin(), suspects_.end(),
                     [&sequence](const auto& one) { return one.get() == &sequence; });
}

void SchedulerState::JudgeLosses(Sequence* sequence) {
  if (sequence->n_losses < 2 || IsSuspect(*sequence)) return;
  const auto place = std::find_if(suspects_.begin(), suspects_.end(), [sequence](const auto& one) {
    return ServedFirst()(sequence, one.get());
  });
  suspects_.insert(place, sequence->shared_from_this());
}

std::shared_ptr<Sequence> SchedulerState::Interrupt() {
  std::shared_ptr<Sequence> culprit;
  absl::flat_hash_map<Sequence*, uint32_t> in_flight;  // with its first position
  for (const InFlightStep& step : in_flight_) {
    for (const InFlightStep::Row& row : step.rows) {
      if (row.sequence.get() == on_trial()) culprit = row.sequence;
      if (row.sequence->state == Sequence::State::kEnded) continue;
      in_flight.emplace(row.sequence.get(), row.start);
    }
  }
  const uint64_t last_done = in_flight_.empty() ? n_steps_ : in_flight_.front().step - 1;
  TakeBackInFlight();
  TakeBackRows(last_done, in_flight);
  for (const auto& [sequence, start] : in_flight) {
    const bool has_passed = sequence->n_generated() >= sequence->n_generated_at_loss + kTrialTokens;
    sequence->n_losses = has_passed ? 1 : sequence->n_losses + 1;
    sequence->n_generated_at_loss = sequence->n_generated();
    JudgeLosses(sequence);
  }
  return culprit;
}

void SchedulerState::TakeBackRows(uint64_t step,
                                  const absl::flat_hash_map<Sequence*, uint32_t>& first_start) {
  kv_.ForgetAfter(step);
  for (Sequence* sequence : std::vector(running_.begin(), running_.end())) {
    const auto first = first_start.find(sequence);
    const uint32_t position = first == first_start.end() ? sequence->next_position : first->second;
    // The stages add a mean up as they compute, so it begins again. So does a recurrent state.
    if (sequence->first_step > step || IsMean(sequence->request->sampling) ||
        config_.is_recurrent || !kv_.TakeBack(sequence->tables, sequence->prefix, position)) {
      LetWait(sequence, /*keep=*/false);
      continue;
    }
    sequence->next_position = position;
    sequence->n_registered = sequence->n_tokens();
    sequence->n_to_prefill = sequence->n_registered - position;
    sequence->to_register = true;
  }
}

void SchedulerState::BeginEpoch(uint64_t epoch, bool kv_kept) {
  SC_CHECK(in_flight_.empty());
  if (!kv_kept || !suspects_.empty()) {
    for (Sequence* sequence : std::vector(running_.begin(), running_.end())) {
      LetWait(sequence, /*keep=*/kv_kept);
    }
  }
  if (!kv_kept) kv_.ForgetAll();
  releases_.clear();  // no stage knows a sequence
  loads_.Open();
  epoch_ = epoch;
  steps_before_epoch_ = n_steps_;
}

void SchedulerState::SettleTrial() {
  Sequence* const sequence = on_trial();
  if (sequence == nullptr || !in_flight_.empty()) return;
  if (sequence->n_generated() < sequence->n_generated_at_loss + kTrialTokens) return;
  sequence->n_losses = 0;
  suspects_.pop_front();
  // The next one is alone too.
  if (!suspects_.empty() && sequence->running()) Preempt(sequence);
}

void SchedulerState::TakeBackInFlight() {
  if (!in_flight_.empty()) busy_ += Clock::now() - busy_since_;
  for (const InFlightStep& step : in_flight_) {
    for (const InFlightStep::Row& row : step.rows) {
      --row.sequence->n_in_flight;
      if (row.sample) --row.sequence->n_in_flight_samples;
    }
  }
  in_flight_.clear();
}

std::vector<uint32_t> SchedulerState::TakeReleases() { return std::exchange(releases_, {}); }

void SchedulerState::PushInFlight(InFlightStep step) {
  SC_CHECK(step.step == n_steps_ + 1);
  if (in_flight_.empty()) busy_since_ = Clock::now();
  n_steps_ = step.step;
  uint64_t n_tokens = 0;
  for (const InFlightStep::Row& row : step.rows) {
    Tenant* tenant = row.sequence->tenant;
    n_tokens += row.n_tokens;
    if (tenant->n_uncharged == 0) continue;
    waiting_.Charge(tenant, std::exchange(tenant->n_uncharged, 0));
  }
  if (n_tokens > 0) clock_ += std::max<uint64_t>(n_tokens, config_.break_even_rows);
  in_flight_.push_back(std::move(step));
}

InFlightStep SchedulerState::PopInFlight() {
  SC_CHECK(!in_flight_.empty());
  InFlightStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (in_flight_.empty()) busy_ += Clock::now() - busy_since_;
  for (const InFlightStep::Row& row : step.rows) {
    Sequence& sequence = *row.sequence;
    SC_CHECK(sequence.n_in_flight > 0);
    --sequence.n_in_flight;
    if (row.sample) --sequence.n_in_flight_samples;
    const uint32_t end = std::min(row.start + row.n_tokens, sequence.n_prompt);
    n_prompt_tokens_ += end > row.start ? end - row.start : 0;
  }
  return step;
}

double SchedulerState::InFlightMs() const {
  Clock::duration busy = busy_;
  if (!in_flight_.empty()) busy += Clock::now() - busy_since_;
  return std::chrono::duration<double, std::milli>(busy).count();
}

void SchedulerState::CheckSequence(const Sequence& sequence, uint32_t n_rows,
                                   uint32_t n_samples) const {
  SC_CHECK(sequence.n_in_flight == n_rows && sequence.n_in_flight_samples == n_samples);
  if (!sequence.running()) {
    SC_CHECK(sequence.state != Sequence::State::kEnded);
    for (const BlockTable& table : sequence.tables) SC_CHECK(table.ids.empty());
    SC_CHECK(sequence.prefix.node == nullptr);
    return;
  }
  SC_CHECK(sequence.n_in_flight_samples <= kMostDecodes);
  SC_CHECK(!sequence.restores || (sequence.fetch != 0 && sequence.n_in_flight == 0));
  if (sequence.decoding()) {
    SC_CHECK(sequence.next_position + 1 == sequence.n_tokens() + sequence.n_in_flight_samples);
  }
  for (int g = 0; g < kv_.n_groups(); ++g) {
    SC_CHECK(sequence.tables[g].ids.size() == BlocksFor(sequence.next_position));
    SC_CHECK(sequence.tables[g].n_held() <=
             kv_.MostHeld(g, static_cast<uint32_t>(config_.max_model_len)));
  }
}

void SchedulerState::CheckConsistency() const {
  struct Rows {
    uint32_t all = 0, samples = 0;
  };
  absl::flat_hash_map<const Sequence*, Rows> rows;
  for (const InFlightStep& step : in_flight_) {
    for (const InFlightStep::Row& row : step.rows) {
      Rows& counts = rows[row.sequence.get()];
      ++counts.all;
      counts.samples += row.sample ? 1 : 0;
    }
  }
  size_t n_running = 0;
  uint32_t n_present = 0;
  for (const auto& tenant : tenants_.all()) {
    SC_CHECK(tenant->n_present ==
             tenant->n_running + tenant->waiting.size() + tenant->loading.size());
    SC_CHECK(waiting_.tenants().contains(tenant.get()) == !tenant->waiting.empty());
    n_present += tenant->n_present;
  }
  SC_CHECK(n_present == sequences_.size());
  KvBlocks::Holds holds(kv_.n_groups());
  absl::flat_hash_set<uint32_t> slots(free_slots_.begin(), free_slots_.end());
  SC_CHECK(slots.size() == free_slots_.size());
  for (const auto& [id, sequence] : sequences_) {
    const Rows counts = rows[sequence.get()];
    CheckSequence(*sequence, counts.all, counts.samples);
    if (!sequence->running()) continue;
    ++n_running;
    SC_CHECK(running_.contains(sequence.get()));
    SC_CHECK(slots.insert(sequence->slot).second);
    kv_.CountHolds(sequence->tables, holds);
  }
  SC_CHECK(n_running == running_.size());
  SC_CHECK(slots.size() == static_cast<size_t>(config_.max_sequences));
  SC_CHECK(sequences_.size() ==
           n_running + static_cast<size_t>(waiting_.size() + waiting_.n_loading()));
  loads_.CheckConsistency();
  for (const auto& [leader, followers] : followers_) {
    SC_CHECK(!followers.empty() && Find(leader) != nullptr && Find(leader)->n_generated() == 0);
    for (const Sequence* sequence : followers) {
      SC_CHECK(sequence->state == Sequence::State::kLoading && sequence->leader == leader);
    }
  }
  uint32_t n_pending = 0;
  for (const Sequence* sequence : running_) n_pending += sequence->states.pending ? 1 : 0;
  kv_.CheckStates(n_pending);
  for (int g = 0; g < kv_.n_groups(); ++g) {
    SC_CHECK(kv_.n_free(g) + holds[g].size() == kv_.n_total(g));
    for (const auto& [id, n] : holds[g]) SC_CHECK(kv_.n_holders(g, id) == n);
  }
}

}  // namespace stagecoach::router
