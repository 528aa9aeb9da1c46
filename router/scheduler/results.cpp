#include "router/scheduler/results.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace stagecoach::router {
namespace {

absl::Status BadResult(const v1::StepResult& result, std::string_view what) {
  return absl::InternalError(absl::StrCat("the last stage's result of step ", result.step(), " ",
                                          absl::string_view(what.data(), what.size()),
                                          "; run the same version on router and workers"));
}

// Checks the logprobs of one position; `n_top` top tokens were requested.
absl::Status CheckLogprobs(const v1::StepResult& result, const v1::Logprobs& logprobs,
                           int32_t n_top) {
  if (logprobs.top_ids_size() != logprobs.top_size() || logprobs.top_size() > n_top) {
    return BadResult(result, "has logprobs that were not requested");
  }
  const auto is_number = [](float logprob) { return !std::isnan(logprob); };
  if (!is_number(logprobs.chosen()) ||
      !std::all_of(logprobs.top().begin(), logprobs.top().end(), is_number)) {
    return BadResult(result, "has NaN logprobs");
  }
  return absl::OkStatus();
}

absl::Status CheckValues(const v1::StepResult& result, const v1::SlotPooling& pooling,
                         const v1::SlotResult& slot) {
  if (slot.values().empty()) return absl::OkStatus();  // from a release before there were values
  if (pooling.what() == v1::SlotPooling::LOGITS && slot.values_size() != pooling.logit_ids_size()) {
    return BadResult(result, "has other logits than were asked for");
  }
  const bool all_finite = std::all_of(slot.values().begin(), slot.values().end(),
                                      [](float value) { return std::isfinite(value); });
  return all_finite ? absl::OkStatus() : BadResult(result, "has values that are not finite");
}

// Only what was requested may reach clients.
absl::Status CheckAnswer(const v1::StepResult& result, const v1::SlotSampling& sampling,
                         const v1::SlotResult& slot) {
  if (sampling.n_prompt_logprobs() >= 0) {
    for (const v1::Logprobs& logprobs : slot.prompt_logprobs()) {
      absl::Status status = CheckLogprobs(result, logprobs, sampling.n_prompt_logprobs());
      if (!status.ok()) return status;
    }
  }
  if (!slot.failure().empty()) {
    return sampling.has_grammar()
               ? absl::OkStatus()
               : BadResult(result, "reports a grammar failure for a sequence without a grammar");
  }
  if (!slot.sampled()) return absl::OkStatus();
  if (sampling.has_pooling()) return CheckValues(result, sampling.pooling(), slot);
  if (sampling.n_logprobs() < 0) return absl::OkStatus();
  if (!slot.has_logprobs()) return BadResult(result, "lacks logprobs");
  return CheckLogprobs(result, slot.logprobs(), sampling.n_logprobs());
}

Finish FinishOf(const Sequence& sequence, int32_t max_model_len) {
  const v1::SlotSampling& sampling = sequence.request->sampling;
  const bool may_stop = sequence.n_generated() > sampling.min_tokens();
  const auto last_is_in = [&](const auto& ids) {
    return std::find(ids.begin(), ids.end(), sequence.tokens().back()) != ids.end();
  };
  if (may_stop && last_is_in(sampling.stop_ids())) return Finish::kStopToken;
  // Before min_tokens, an end id comes only if the grammar allows nothing else.
  if (last_is_in(sampling.grammar().end_ids())) return Finish::kStopToken;
  const bool full = std::cmp_greater_equal(sequence.n_tokens(), max_model_len);
  return full || sequence.n_generated() >= sequence.request->max_tokens ? Finish::kLength
                                                                        : Finish::kNone;
}

// The prompt logprobs of `slot` that the sink has not received: after a preemption, the first ones
// come again.
absl::StatusOr<std::vector<const v1::Logprobs*>> NewPromptLogprobs(const InFlightStep::Row& row,
                                                                   const v1::StepResult& result,
                                                                   const v1::SlotResult& slot) {
  std::vector<const v1::Logprobs*> fresh;
  Sequence& sequence = *row.sequence;
  if (sequence.request->sampling.n_prompt_logprobs() < 0) return fresh;
  uint32_t position = row.start + 1;
  for (const v1::Logprobs& logprobs : slot.prompt_logprobs()) {
    if (position > sequence.next_prompt_logprob || position >= sequence.n_prompt) {
      return BadResult(result, "has prompt logprobs for positions that were not planned");
    }
    if (position == sequence.next_prompt_logprob) {
      fresh.push_back(&logprobs);
      ++sequence.next_prompt_logprob;
    }
    ++position;
  }
  return fresh;
}

absl::Status ApplyRow(SchedulerState& state, const InFlightStep::Row& row,
                      const v1::StepResult& result, const v1::SlotResult& slot) {
  Sequence* sequence = row.sequence.get();
  absl::Status status = CheckAnswer(result, sequence->request->sampling, slot);
  if (!status.ok()) return status;
  SequenceOutput output;
  auto prompt_logprobs = NewPromptLogprobs(row, result, slot);
  if (!prompt_logprobs.ok()) return prompt_logprobs.status();
  output.prompt_logprobs = *prompt_logprobs;
  const int32_t token = slot.token();
  if (!slot.failure().empty()) {
    state.End(sequence);
    sequence->request->sink->OnError(
        absl::InvalidArgumentError(absl::StrCat("sampling.grammar: ", slot.failure())));
    return absl::OkStatus();
  }
  if (slot.sampled() && sequence->request->sampling.has_pooling()) {
    state.End(sequence);
    if (slot.values().empty()) {
      sequence->request->sink->OnError(
          absl::UnavailableError("the last stage's worker is of an older release, which has no "
                                 "embeddings and no reranking; try again after the upgrade"));
      return absl::OkStatus();
    }
    output.values = {slot.values().data(), static_cast<size_t>(slot.values_size())};
    output.finish = Finish::kLength;
  } else if (slot.sampled()) {
    state.AppendToken(sequence, token);
    output.tokens = {&token, 1};
    if (sequence->request->sampling.n_logprobs() >= 0) {
      output.logprobs = &slot.logprobs();
    }
    output.finish = FinishOf(*sequence, state.config().max_model_len);
    if (output.finish != Finish::kNone) state.End(sequence);
  }
  if (output.finish != Finish::kNone || !output.tokens.empty() || !output.prompt_logprobs.empty()) {
    sequence->request->sink->OnOutput(output, sequence->times);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyResult(SchedulerState& state, const v1::StepResult& result) {
  if (state.in_flight().empty()) return BadResult(result, "was never planned");
  const uint64_t expected = state.NumberInEpoch(state.in_flight().front().step);
  if (result.epoch() != state.epoch() || result.step() != expected) {
    return BadResult(result, absl::StrCat("came when the expected step was ", expected,
                                          " of epoch ", state.epoch()));
  }
  const InFlightStep step = state.PopInFlight();
  auto slot = result.slots().begin();
  for (const InFlightStep::Row& row : step.rows) {
    const bool answered = slot != result.slots().end() && slot->slot() == row.slot;
    const v1::SlotResult* answer = answered ? &*slot++ : nullptr;
    if (row.sequence->state == Sequence::State::kEnded) continue;
    if (row.span_id) {
      row.sequence->request->sink->OnTracedStep({.span_id = *row.span_id,
                                                 .step = result.step(),
                                                 .start = row.start,
                                                 .n_tokens = row.n_tokens,
                                                 .decode = row.start >= row.sequence->n_registered,
                                                 .planned = step.planned});
    }
    if (row.sample != (answered && answer->sampled())) {
      return BadResult(result, "samples other slots than planned");
    }
    if (answered) {
      if (absl::Status status = ApplyRow(state, row, result, *answer); !status.ok()) return status;
    }
  }
  if (slot != result.slots().end()) return BadResult(result, "has a slot that was not planned");
  return absl::OkStatus();
}

}  // namespace stagecoach::router
