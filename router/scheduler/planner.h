// Plans the next step from the scheduler's state.
//
// The planner first chooses decodes: an even share of the decoding sequences, in rotation. Then it
// plans all rows in one order: decodes, prefill chunks and admissions together. Tenants come in the
// order of their service so far, the least served first; within a tenant, sequences come in their
// order of service. So the prefill tokens, free slots and free blocks of a step go to the tenant
// with the least service.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "router/scheduler/policies.h"
#include "router/scheduler/room.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Limit of the tokens that a step registers, as a multiple of max_batched_tokens. Tokens of adopted
// blocks need no compute, but the registration sends them to the stages.
inline constexpr int32_t kRegisteredSteps = 16;

class Planner {
 public:
  // `state` outlives the planner.
  explicit Planner(SchedulerState* state);

  // The next step, already counted as in flight. Null if no step may be sent now, or if there is
  // nothing to do.
  std::unique_ptr<v1::StepPlan> Plan();

 private:
  using Sequences = std::vector<Sequence*>;
  // A step without rows that tells stages which slots are free, what to save and what to forget.
  // Null while a step is in flight: the plan that follows its result tells them.
  std::unique_ptr<v1::StepPlan> PlanNews();
  void BeginStep();
  // The next step of a suspect, which runs alone. Null while a step is in flight.
  std::unique_ptr<v1::StepPlan> PlanTrial(Sequence* suspect);
  void PreemptForTesting();
  Sequences ChooseDecodes();
  void PlanRows(Sequences decodes, bool keeps_tokens);
  int32_t NTokensFor(const Sequence& prefill) const;
  void PlanAheadOldest();
  Sequences AheadOf(const InFlightStep& step, size_t n_most) const;

  void PlanDecode(Sequence* sequence);
  void PlanPrefill(Sequence* sequence);
  bool HasOtherRows() const { return !step_.rows.empty() || !decodes_kept_for_.empty(); }
  // False: nobody else is to be admitted to this step. True: it is admitted, and has a row or
  // restores blocks first; or it loads blocks before.
  bool TryAdmit(Sequence* sequence);
  // Asks the stages to make spans for this row's step.
  SpanId AddTrace(const TraceId& trace_id);
  bool IsTraced(const Sequence& sequence) const;
  void AddRow(Sequence* sequence, uint32_t end, bool sample);
  void AddRegistration(const Sequence& sequence);
  // Lets the stages save the recurrent state within the sequence's rows up to `end`, if it is time.
  void SaveState(Sequence* sequence, uint32_t end, v1::SlotDelta& delta);
  uint32_t StateNumber(uint32_t saved) const;
  // In all copies of the plan.
  void NumberCopiedStates();
  std::unique_ptr<v1::StepPlan> Finish();

  bool CanPlanAhead(const Sequence& sequence) const;
  Sequences Idle() const;
  void ChooseMicrobatches();
  size_t NDecodes() const;
  uint64_t NTokensToPrefill() const;
  int32_t NPrefillTokens(uint64_t n_to_prefill, size_t n_decodes) const;
  uint64_t StepNumber() const { return state_.n_steps() + 1; }

  SchedulerState& state_;
  Room room_;
  const Microbatches microbatches_;
  const InFlightLimit in_flight_limit_;
  const DecodeShare decode_share_;
  const PrefillBudget prefill_budget_;
  uint64_t last_tested_step_ = 0;

  // State of the step being planned.
  int32_t n_microbatches_ = 1;
  std::unique_ptr<v1::StepPlan> plan_;
  InFlightStep step_;
  int32_t n_tokens_left_ = 0;
  int32_t n_prefill_left_ = 0;
  int64_t n_registered_left_ = 0;  // tokens; the last newcomer may exceed the limit
  // Chosen decodes that are not planned yet. The budget n_tokens_left_ reserves one token for each.
  std::span<Sequence* const> decodes_kept_for_;
  Room::Preempts preempts_ = Room::Preempts::kByShare;
  bool admitting_ = true;  // false once a sequence lacks blocks, because a newcomer would take them
};

}  // namespace stagecoach::router
