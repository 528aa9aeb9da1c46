// Turns state into the next step.
//
// Decodes are chosen first (an even share of those that run, in turns), then all rows are planned
// in turn, decodes, prefill chunks and admissions alike: first those of the tenant that had the
// least service, of one tenant in its order of service. So a step's prefill tokens, and slots and
// blocks that are free, go to who is behind.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "router/scheduler/policies.h"
#include "router/scheduler/room.h"
#include "router/scheduler/state.h"

namespace stagecoach::router {

// Tokens of newcomers that a step names, in those of a step: what other sequences computed costs no
// time to compute, but each stage is told of it.
inline constexpr int32_t kRegisteredSteps = 16;

class Planner {
 public:
  // `state` outlives the planner.
  explicit Planner(SchedulerState* state);

  // The next step, already counted as in flight; null when none may be sent or there is nothing to
  // do.
  std::unique_ptr<v1::StepPlan> Plan();

 private:
  using Sequences = std::vector<Sequence*>;
  // A step without rows that tells stages which slots are free. Null while a step is in flight: the
  // plan that follows its result tells them.
  std::unique_ptr<v1::StepPlan> PlanReleases();
  void PreemptForTesting();
  Sequences ChooseDecodes();
  void PlanRows(Sequences decodes, bool keeps_tokens);
  int32_t NTokensFor(const Sequence& prefill) const;
  void PlanAheadOldest();
  Sequences AheadOf(const InFlightStep& step, size_t n_most) const;

  void PlanDecode(Sequence* sequence);
  void PlanPrefill(Sequence* sequence);
  bool TryAdmit(Sequence* sequence);
  // The stages are to make spans of this row's step.
  SpanId AddTrace(const TraceId& trace_id);
  bool IsTraced(const Sequence& sequence) const;
  void AddRow(Sequence* sequence, uint32_t end, bool sample);
  void AddRegistration(const Sequence& sequence);
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

  // Of the step being planned.
  int32_t n_microbatches_ = 1;
  std::unique_ptr<v1::StepPlan> plan_;
  InFlightStep step_;
  int32_t n_tokens_left_ = 0;
  int32_t n_prefill_left_ = 0;
  int64_t n_registered_left_ = 0;  // tokens; the last newcomer may exceed it
  // Those chosen that come later in turn, each of which has a token of n_tokens_left_ kept.
  std::span<Sequence* const> decodes_kept_for_;
  Room::Preempts preempts_ = Room::Preempts::kByShare;
  bool admitting_ = true;  // false once somebody lacks blocks: a newcomer would take them
};

}  // namespace stagecoach::router
