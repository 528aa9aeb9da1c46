// The last stage's end of a step: logits of the rows that yield something, the draw, the result.
// Preallocated; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops.h"
#include "worker/model/stage_model.h"
#include "worker/model/step_batch.h"
#include "worker/stage/grammar_masks.h"
#include "worker/stage/slot_table.h"
#include "worker/stage/stage_clock.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::v1 {
class Logprobs;
class StepResult;
}  // namespace stagecoach::v1

namespace stagecoach::worker {

// As sent on the tokens channel: little-endian, one after another.
struct TokenRecord {
  uint32_t slot;
  int32_t token;
};
static_assert(sizeof(TokenRecord) == 8);

class Sampler {
 public:
  // `model` (which is the last stage's) and all others outlive the sampler.
  Sampler(const StageLimits& limits, StageModel* model, kernels::Ops* ops, GrammarMasks* masks,
          StageClock* clock);

  // hidden: [T, hidden_size], after the last layer. Fills in `result` and tokens(). Takes as many
  // turns as max_logit_rows() demands.
  absl::Status Run(const StepMetaView& meta, const StepBatch& batch, const SlotTable& slots,
                   const float* hidden, v1::StepResult* result);

  // Of the last Run, one for each slot that sampled, in the plan's order.
  std::span<const TokenRecord> tokens() const { return tokens_; }

 private:
  // A row of logits to take.
  struct Want {
    uint32_t plan_index = 0;    // slot of the plan
    int32_t row = 0;            // of hidden
    int32_t prompt_token = -1;  // whose log-probability is wanted; -1: sample
  };

  void CollectWants(const StepMetaView& meta, const StepBatch& batch, const SlotTable& slots);
  // Waits for the mask of a row that keeps to a grammar.
  kernels::SampleRow MakeRow(const StepMetaView& meta, const SlotTable& slots, const Want& want);
  const TokenMask& AwaitMask(uint32_t slot);
  void Report(const StepMetaView& meta, const Want& want, const kernels::SampleRow& row,
              const kernels::SampledToken& sampled, v1::StepResult* result);

  const int32_t vocab_size_;
  StageModel* const model_;
  kernels::Ops* const ops_;
  GrammarMasks* const masks_;
  StageClock* const clock_;
  std::vector<Want> wants_;
  std::vector<TokenRecord> tokens_;
  // Of one turn: [max_logit_rows], the last two by max_logprobs.
  std::vector<int32_t> rows_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::SampledToken> sampled_;
  std::vector<int32_t> top_ids_;
  std::vector<float> top_logprobs_;
  int32_t max_logprobs_;
};

}  // namespace stagecoach::worker
