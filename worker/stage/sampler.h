// The last stage's end of a step: logits of the rows that yield something, the draw, the result.
//
// Start queues it all on the device and Finish, when the device is done, makes the result: with a
// device that runs ahead, the next step is started in between. Preallocated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "stagecoach/v1/step.pb.h"
#include "worker/model/stage_model.h"
#include "worker/stage/batch_builder.h"
#include "worker/stage/grammar_masks.h"
#include "worker/stage/slot_table.h"
#include "worker/stage/stage_clock.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// As sent on the tokens channel: little-endian, one after another.
struct TokenRecord {
  uint32_t slot;
  int32_t token;
};
static_assert(sizeof(TokenRecord) == 8);

// Limit for SlotPooling::logit_ids: yes and no, and some more.
inline constexpr int32_t kMostPooledLogits = 8;

// A step's samples between Start and Finish.
class PendingSamples {
 public:
  // For as many rows as `model` takes logits of at once.
  static absl::StatusOr<std::unique_ptr<PendingSamples>> Allocate(const StageLimits& limits,
                                                                  const StageModel& model,
                                                                  kernels::Ops* ops);

 private:
  friend class Sampler;
  struct Row {
    uint32_t slot = 0;
    bool is_prompt = false;  // its log-probability is wanted; else a token is drawn
    int32_t n_logprobs = -1;
    int32_t n_logits = 0;
    std::string failure;  // of the slot's grammar
  };
  std::vector<Row> rows_;  // [n] of the last turn
  v1::StepResult result_;
  std::vector<TokenRecord> tokens_;
  kernels::Buffer memory_;
  std::span<kernels::SampledToken> sampled_;  // [max_logit_rows], in memory_
  float* logits_ = nullptr;                   // [max_logit_rows, kMostPooledLogits], in memory_
};

class Sampler {
 public:
  // `model` (which is the last stage's) and all others outlive the sampler.
  Sampler(const StageLimits& limits, StageModel* model, kernels::Ops* ops, GrammarMasks* masks,
          StageClock* clock);

  // Whether sampling for slot `i` needs the values of earlier tokens on the host. If so, the slot
  // table must have them.
  static bool NeedsTokens(const StepMetaView& meta, size_t i, const SlotTable& slots);

  // Returns the rows whose logits the step needs, ascending. Call it before the model's Forward,
  // which takes them. Valid until the next call.
  std::span<const int32_t> ChooseRows(const StepMetaView& meta, const BatchBuilder& batch,
                                      const SlotTable& slots);

  // Call it after Forward. hidden: [T, hidden_size]; the chosen rows have passed the last layer.
  // Samples in as many turns as max_logit_rows() requires, and waits for all turns but the last.
  absl::Status Start(const StepMetaView& meta, const SlotTable& slots, const float* hidden,
                     PendingSamples* pending);

  // Call it after the device has finished the work that Start queued; any thread may call it.
  // tokens: one per slot that sampled, in the order of the plan; valid until the next Start.
  static v1::StepResult Finish(PendingSamples* pending, std::span<const TokenRecord>* tokens);

 private:
  // A row whose logits are needed.
  struct Want {
    uint32_t plan_index = 0;    // slot of the plan
    int32_t prompt_token = -1;  // report this token's log-probability; -1: sample
  };

  // Waits for the mask of a row with a grammar.
  kernels::SampleRow MakeRow(const StepMetaView& meta, const SlotTable& slots, const Want& want);
  const TokenMask& AwaitMask(uint32_t slot);
  // Queues the copy of logits that a row of the turn asks for. Returns their number.
  int32_t CopyLogits(const float* logits, const SlotTable& slots, const Want& want, uint32_t slot,
                     float* to);
  static void Report(PendingSamples* pending);

  const int32_t vocab_size_;
  StageModel* const model_;
  kernels::Ops* const ops_;
  GrammarMasks* const masks_;
  StageClock* const clock_;
  // One entry per row of the step: [max_batched_tokens]
  std::vector<Want> wants_;
  std::vector<int32_t> rows_;  // indexes of rows in hidden
  // The rows of one turn: [max_logit_rows]
  std::vector<kernels::SampleRow> sample_rows_;
};

}  // namespace stagecoach::worker
