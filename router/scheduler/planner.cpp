#include "router/scheduler/planner.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/kv_block.h"

namespace stagecoach::router {
namespace {

// Every prefill chunk of a traced sequence is traced, but only one decode in this many.
constexpr uint32_t kTracedDecodes = 64;
constexpr int kMostStepTraces = 16;

}  // namespace

Planner::Planner(SchedulerState* state)
    : state_(*state),
      room_(state),
      microbatches_{state_.config().n_microbatches, state_.config().plan_ahead,
                    state_.config().break_even_rows},
      in_flight_limit_{state_.config().plan_ahead},
      decode_share_{state_.config().plan_ahead, state_.config().max_batched_tokens},
      prefill_budget_{state_.config().n_microbatches, state_.config().plan_ahead,
                      state_.config().max_batched_tokens, state_.config().break_even_rows} {}

std::unique_ptr<v1::StepPlan> Planner::Plan() {
  // The next request may be hours away; until then stages would hold grammars of ended sequences.
  if (state_.is_idle()) return PlanNews();
  if (Sequence* suspect = state_.on_trial()) return PlanTrial(suspect);
  ChooseMicrobatches();
  if (std::cmp_greater_equal(state_.in_flight().size(), in_flight_limit_(n_microbatches_))) {
    return nullptr;
  }
  BeginStep();
  PreemptForTesting();
  state_.BeginTurn();
  preempts_ = Room::Preempts::kByShare;
  const Sequences decodes = ChooseDecodes();
  n_prefill_left_ = NPrefillTokens(NTokensToPrefill(), decodes.size());
  PlanRows(decodes, /*keeps_tokens=*/true);
  // All chosen sequences may lack blocks while others do not.
  if (step_.rows.empty()) {
    if (state_.in_flight().empty()) preempts_ = Room::Preempts::kLastResort;
    PlanRows(Idle(), /*keeps_tokens=*/false);
  }
  if (step_.rows.empty()) PlanAheadOldest();
  if (step_.rows.empty()) {
    // Otherwise no event would ever trigger another plan.
    SC_CHECK(!state_.in_flight().empty() || state_.loads().has_unanswered());
    return nullptr;
  }
  return Finish();
}

void Planner::BeginStep() {
  plan_ = std::make_unique<v1::StepPlan>();
  state_.kv().BeginStep(StepNumber());
  step_ = {.step = StepNumber(), .planned = std::chrono::steady_clock::now()};
  n_tokens_left_ = state_.config().max_batched_tokens;
  n_prefill_left_ = n_tokens_left_;
  n_registered_left_ = int64_t{kRegisteredSteps} * n_tokens_left_;
  admitting_ = true;
}

std::unique_ptr<v1::StepPlan> Planner::PlanNews() {
  if (!state_.in_flight().empty() || !state_.has_news()) return nullptr;
  BeginStep();
  return Finish();
}

std::unique_ptr<v1::StepPlan> Planner::PlanTrial(Sequence* suspect) {
  if (!state_.in_flight().empty()) return nullptr;
  BeginStep();
  preempts_ = Room::Preempts::kNobody;
  if (!suspect->running()) {
    // A suspect may come from another pipeline.
    const Sequences others(state_.running().begin(), state_.running().end());
    for (Sequence* other : others) state_.Preempt(other);
    SC_CHECK(TryAdmit(suspect));
  } else if (suspect->decoding()) {
    PlanDecode(suspect);
  } else {
    PlanPrefill(suspect);
  }
  return Finish();
}

void Planner::PreemptForTesting() {
  const int32_t every = state_.config().preempt_every;
  if (every == 0 || StepNumber() % every != 0 || last_tested_step_ == StepNumber()) return;
  last_tested_step_ = StepNumber();
  // Only decoding sequences, so that every sequence gains at least one token per prefill.
  Sequence* youngest = nullptr;
  for (Sequence* sequence : state_.running()) {
    if (!sequence->decoding()) continue;
    if (youngest == nullptr || sequence->arrival > youngest->arrival) youngest = sequence;
  }
  if (youngest != nullptr) state_.Preempt(youngest);
}

// The most decodes that one step may have.
size_t Planner::NDecodes() const {
  int32_t n_decoding = 0;
  for (const Sequence* sequence : state_.running()) n_decoding += sequence->decoding() ? 1 : 0;
  return static_cast<size_t>(decode_share_(n_decoding, n_microbatches_));
}

void Planner::ChooseMicrobatches() {
  n_microbatches_ = state_.config().n_microbatches;  // used to count the decodes beside the prefill
  // With one stage the result is fixed; skip the counting.
  if (microbatches_(state_.config().max_batched_tokens) == n_microbatches_) return;
  const uint64_t n_to_prefill = NTokensToPrefill();
  const auto n_budget = static_cast<uint64_t>(NPrefillTokens(n_to_prefill, NDecodes()));
  n_microbatches_ = microbatches_(static_cast<int32_t>(std::min(n_budget, n_to_prefill)));
}

uint64_t Planner::NTokensToPrefill() const {
  uint64_t n_of_running = 0;
  for (const Sequence* sequence : state_.running()) {
    if (!sequence->decoding()) n_of_running += sequence->n_to_prefill;
  }
  const WaitingQueue& queue = state_.waiting();
  return PrefillDemand()(n_of_running, queue.n_to_prefill(), static_cast<uint64_t>(queue.size()),
                         state_.n_free_slots());
}

int32_t Planner::NPrefillTokens(uint64_t n_to_prefill, size_t n_decodes) const {
  return prefill_budget_(n_to_prefill, state_.kv().FreeFraction(), static_cast<int32_t>(n_decodes));
}

Planner::Sequences Planner::Idle() const {
  Sequences idle;
  for (Sequence* sequence : state_.running()) {
    if (sequence->decoding() && sequence->n_in_flight == 0) idle.push_back(sequence);
  }
  return idle;
}

Planner::Sequences Planner::ChooseDecodes() {
  const size_t share = NDecodes();
  Sequences chosen = Idle();
  if (chosen.size() > share) {
    std::stable_sort(chosen.begin(), chosen.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_step < b->last_step;
    });
    chosen.resize(share);
  }
  // If there is a microbatch on every stage, the tokens of the oldest one come next. Its sequences
  // can fill the rest of this step without delaying it. This also brings sequences together again
  // whose turns drifted apart.
  if (state_.config().plan_ahead &&
      std::cmp_greater_equal(state_.in_flight().size(), n_microbatches_)) {
    const Sequences ahead = AheadOf(state_.in_flight().front(), share - chosen.size());
    chosen.insert(chosen.end(), ahead.begin(), ahead.end());
  }
  return chosen;
}

bool Planner::CanPlanAhead(const Sequence& sequence) const {
  if (!sequence.running() || !sequence.decoding() || sequence.n_in_flight_samples != 1) {
    return false;
  }
  // n_tokens() plus the token in flight; at either limit, that token is the last.
  return sequence.n_generated() + 1 < sequence.request->max_tokens &&
         std::cmp_less(sequence.n_tokens() + 1, state_.config().max_model_len);
}

Planner::Sequences Planner::AheadOf(const InFlightStep& step, size_t n_most) const {
  Sequences ahead;
  for (const InFlightStep::Row& row : step.rows) {
    if (ahead.size() == n_most) break;
    if (row.sample && CanPlanAhead(*row.sequence)) ahead.push_back(row.sequence.get());
  }
  return ahead;
}

void Planner::PlanAheadOldest() {
  if (!state_.config().plan_ahead) return;
  const size_t share = NDecodes();
  for (const InFlightStep& step : state_.in_flight()) {
    for (Sequence* sequence : AheadOf(step, share)) PlanDecode(sequence);
    if (!step_.rows.empty()) return;
  }
}

// The tokens that a prefill may take: it must leave tokens for the chosen decodes of other tenants,
// and for those of its own tenant with the same or a better priority.
int32_t Planner::NTokensFor(const Sequence& prefill) const {
  const auto others = std::partition_point(
      decodes_kept_for_.begin(), decodes_kept_for_.end(),
      [&](const Sequence* decode) { return decode->tenant == prefill.tenant; });
  const auto worse =
      std::partition_point(decodes_kept_for_.begin(), others, [&](const Sequence* decode) {
        return decode->request->priority <= prefill.request->priority;
      });
  const auto n_kept = (worse - decodes_kept_for_.begin()) + (decodes_kept_for_.end() - others);
  return n_tokens_left_ - static_cast<int32_t>(n_kept);
}

void Planner::PlanRows(Sequences decodes, bool keeps_tokens) {
  const InTurn before;
  std::sort(decodes.begin(), decodes.end(), before);
  decodes_kept_for_ =
      keeps_tokens ? std::span<Sequence* const>(decodes) : std::span<Sequence* const>();
  Sequences prefills;
  for (Sequence* sequence : state_.running()) {
    if (!sequence->decoding()) prefills.push_back(sequence);
  }
  std::sort(prefills.begin(), prefills.end(), before);
  auto decode = decodes.begin();
  auto prefill = prefills.begin();
  // Merges three ordered lists. The front of the queue may change meanwhile, when a sequence is
  // preempted.
  while (n_tokens_left_ > 0) {
    Sequence* waiting =
        admitting_ && !state_.waiting().empty() ? state_.waiting().first() : nullptr;
    Sequence* running = nullptr;
    const bool is_decode =
        decode != decodes.end() && (prefill == prefills.end() || before(*decode, *prefill));
    if (is_decode) {
      running = *decode;
    } else if (prefill != prefills.end()) {
      running = *prefill;
    }
    if (waiting == nullptr && running == nullptr) break;
    if (waiting != nullptr && (running == nullptr || before(waiting, running))) {
      admitting_ = TryAdmit(waiting);
    } else if (is_decode) {
      ++decode;
      if (!decodes_kept_for_.empty()) decodes_kept_for_ = decodes_kept_for_.subspan(1);
      PlanDecode(running);
    } else {
      ++prefill;
      PlanPrefill(running);
    }
  }
  decodes_kept_for_ = {};
}

// The sequence may have been preempted, and even admitted again, since it was chosen.
void Planner::PlanDecode(Sequence* sequence) {
  if (!sequence->running() || !sequence->decoding()) return;
  if (sequence->last_step == StepNumber() || n_tokens_left_ == 0) return;
  const uint32_t end = sequence->next_position + 1;
  // Planning ahead is not worth a preemption.
  const bool ahead = sequence->n_in_flight > 0;
  if (room_.ForRow(sequence, end, ahead ? Room::Preempts::kNobody : preempts_)) {
    AddRow(sequence, end, /*sample=*/true);
  } else if (!ahead) {
    admitting_ = false;
  }
}

void Planner::PlanPrefill(Sequence* sequence) {
  if (!sequence->running() || sequence->decoding() || sequence->last_step == StepNumber()) return;
  // Others compute while its blocks are copied.
  if (state_.MayRestoreBeside(*sequence) && HasOtherRows()) return;
  const int32_t budget =
      std::min({n_prefill_left_, NTokensFor(*sequence), state_.config().max_prefill_chunk});
  if (budget <= 0) return;
  if (sequence->to_register && n_registered_left_ <= 0) return;
  if (!room_.ForRow(sequence, sequence->next_position + 1, preempts_)) {
    admitting_ = false;
    return;
  }
  uint32_t wanted =
      std::min(sequence->next_position + static_cast<uint32_t>(budget), sequence->n_registered);
  if (state_.kv().saves_states()) {
    wanted = std::min(wanted, sequence->states.last_position + kTokensPerState);
  }
  const uint32_t end = std::min(wanted, state_.kv().Reach(sequence->tables));
  if (end < wanted) admitting_ = false;
  n_prefill_left_ -= static_cast<int32_t>(end - sequence->next_position);
  state_.FinishRestore(sequence, *plan_);
  if (std::exchange(sequence->to_register, false)) AddRegistration(*sequence);
  AddRow(sequence, end, /*sample=*/end == sequence->n_registered);
}

bool Planner::TryAdmit(Sequence* sequence) {
  if (sequence->n_in_flight > 0 || n_registered_left_ <= 0) return false;
  if (std::min(n_prefill_left_, NTokensFor(*sequence)) <= 0) return false;
  if (!room_.ForNewcomer(sequence)) return false;
  // A sequence on trial runs alone, so nobody gains by its waiting.
  if (state_.on_trial() == nullptr) {
    const KvLoads::Begun begun = state_.LoadInTurn(sequence);
    if (begun != KvLoads::Begun::kNone) return begun == KvLoads::Begun::kLoads;
  }
  state_.Admit(sequence);
  state_.BeginRestore(sequence);
  sequence->to_register = true;
  PlanPrefill(sequence);
  SC_CHECK(sequence->last_step == StepNumber() || sequence->restores);
  return true;
}

void Planner::AddRegistration(const Sequence& sequence) {
  n_registered_left_ -= sequence.n_registered;
  v1::SlotRegistration& registration = *plan_->add_registrations();
  registration.set_slot(sequence.slot);
  registration.mutable_tokens()->Add(sequence.tokens().begin(), sequence.tokens().end());
  registration.set_n_prompt(sequence.n_prompt);
  *registration.mutable_sampling() = sequence.request->sampling;
  if (sequence.from_state) registration.set_from_state(StateNumber(*sequence.from_state));
  if (sequence.next_prompt_logprob >= sequence.n_prompt) {
    registration.mutable_sampling()->set_n_prompt_logprobs(-1);
  }
}

bool Planner::IsTraced(const Sequence& sequence) const {
  if (!sequence.request->trace_id || plan_->traces_size() >= kMostStepTraces) return false;
  // By position, not by the number of results: how far plans run ahead depends on timing.
  return !sequence.decoding() || (sequence.next_position - sequence.n_prompt) % kTracedDecodes == 0;
}

SpanId Planner::AddTrace(const TraceId& trace_id) {
  const SpanId span_id = NewSpanId();
  v1::StepTrace& trace = *plan_->add_traces();
  trace.set_trace_id(trace_id.data(), trace_id.size());
  trace.set_span_id(span_id.data(), span_id.size());
  return span_id;
}

void Planner::AddRow(Sequence* sequence, uint32_t end, bool sample) {
  SC_CHECK(sequence->last_step != StepNumber() && end > sequence->next_position);
  const uint32_t n_tokens = end - sequence->next_position;
  const bool was_decoding = sequence->decoding();
  v1::SlotDelta& delta = *plan_->add_slots();
  delta.set_slot(sequence->slot);
  delta.set_start(sequence->next_position);
  delta.set_n_tokens(n_tokens);
  delta.set_sample(sample);
  state_.kv().Grow(sequence->tables, end, delta);
  if (state_.kv().saves_states()) SaveState(sequence, end, delta);
  step_.rows.push_back(
      {sequence->shared_from_this(), sequence->slot, sequence->next_position, n_tokens, sample});
  if (IsTraced(*sequence)) step_.rows.back().span_id = AddTrace(*sequence->request->trace_id);
  sequence->next_position = end;
  sequence->last_step = StepNumber();
  ++sequence->n_in_flight;
  sequence->n_in_flight_samples += sample ? 1 : 0;
  // Immediately: the choices of one request are often planned in the same step.
  state_.Remember(sequence);
  state_.Charge(sequence, n_tokens, /*at_once=*/!was_decoding);
  n_tokens_left_ -= static_cast<int32_t>(n_tokens);
  SC_CHECK(n_tokens_left_ >= 0);
}

// The state is saved at the end of a prompt, at the last block that a decode has filled, and before
// so many tokens have passed that the next step could be too late.
void Planner::SaveState(Sequence* sequence, uint32_t end, v1::SlotDelta& delta) {
  const uint32_t position = SavedPosition(sequence->next_position, end, delta.sample());
  if (position == 0) return;
  StateMarks& marks = sequence->states;
  const auto most = static_cast<uint32_t>(
      std::min(state_.config().max_prefill_chunk, state_.config().max_batched_tokens));
  const uint32_t end_of_prompt = (sequence->n_registered - 1) / kBlockTokens * kBlockTokens;
  if (position < end_of_prompt && end + most <= marks.last_position + kTokensPerState) return;
  marks.last_position = position;
  const std::optional<uint32_t> state = state_.kv().SaveState(position, marks);
  if (state) delta.set_save_state(StateNumber(*state));
}

// As plans name it.
uint32_t Planner::StateNumber(uint32_t saved) const {
  return static_cast<uint32_t>(state_.config().max_sequences) + saved + 1;
}

void Planner::NumberCopiedStates() {
  if (!state_.config().is_recurrent) return;
  const auto number = [this](google::protobuf::RepeatedField<uint32_t>& copied) {
    uint32_t& state = copied[copied.size() - 1];
    if (state != PrefixTree::kNoBlock) state = StateNumber(state) - 1;
  };
  for (v1::KvSave& save : *plan_->mutable_saves()) number(*save.mutable_blocks());
  for (v1::KvRestore& restore : *plan_->mutable_restores()) number(*restore.mutable_blocks());
}

std::unique_ptr<v1::StepPlan> Planner::Finish() {
  for (const InFlightStep::Row& row : step_.rows) {
    Sequence& sequence = *row.sequence;
    // What a decode in flight reads stays, because a loss of the pipeline takes the decode back.
    const bool is_decode = row.start >= sequence.n_registered;
    const uint32_t n_taken_back = is_decode ? std::min(sequence.n_in_flight, kMostDecodes) : 0;
    state_.kv().ReturnBehindWindows(sequence.tables, sequence.next_position - n_taken_back);
  }
  for (uint32_t slot : state_.TakeReleases()) plan_->add_release(slot);
  state_.kv().TakeSaves(step_.step, *plan_);
  if (!step_.rows.empty()) state_.RestoreBeside(*plan_);
  NumberCopiedStates();
  state_.loads().TakeForgotten(*plan_);
  plan_->set_epoch(state_.epoch());
  plan_->set_step(state_.NumberInEpoch(step_.step));
  state_.PushInFlight(std::move(step_));
  return std::move(plan_);
}

}  // namespace stagecoach::router
