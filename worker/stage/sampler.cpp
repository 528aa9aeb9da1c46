#include "worker/stage/sampler.h"

#include <algorithm>

#include "common/status.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::worker {
namespace {

void FillLogprobs(const kernels::SampleRow& row, const kernels::SampledToken& sampled,
                  v1::Logprobs* out) {
  out->set_chosen(sampled.logprob);
  for (int32_t i = 0; i < row.n_logprobs; ++i) {
    if (sampled.top_ids[i] < 0) break;  // more were asked for than the vocabulary has
    out->add_top_ids(sampled.top_ids[i]);
    out->add_top(sampled.top_logprobs[i]);
  }
}

}  // namespace

Sampler::Sampler(const StageLimits& limits, StageModel* model, kernels::Ops* ops,
                 GrammarMasks* masks, StageClock* clock)
    : vocab_size_(model->spec().vocab_size),
      model_(model),
      ops_(ops),
      masks_(masks),
      clock_(clock),
      max_logprobs_(limits.max_logprobs) {
  const size_t n_rows = static_cast<size_t>(model->max_logit_rows());
  wants_.reserve(limits.max_batched_tokens);
  tokens_.reserve(limits.max_sequences);
  rows_.resize(n_rows);
  sample_rows_.resize(n_rows);
  sampled_.resize(n_rows);
  top_ids_.resize(n_rows * max_logprobs_);
  top_logprobs_.resize(n_rows * max_logprobs_);
}

absl::Status Sampler::Run(const StepMetaView& meta, const StepBatch& batch, const SlotTable& slots,
                          const float* hidden, v1::StepResult* result) {
  tokens_.clear();
  CollectWants(meta, batch, slots);
  for (size_t first = 0; first < wants_.size(); first += rows_.size()) {
    const size_t n = std::min(rows_.size(), wants_.size() - first);
    for (size_t i = 0; i < n; ++i) rows_[i] = wants_[first + i].row;
    const float* logits = model_->Logits(hidden, std::span(rows_).first(n));
    // After the logits are on their way: masks are computed meanwhile.
    for (size_t i = 0; i < n; ++i) {
      sample_rows_[i] = MakeRow(meta, slots, wants_[first + i]);
      sampled_[i] = {.top_ids = top_ids_.data() + i * max_logprobs_,
                     .top_logprobs = top_logprobs_.data() + i * max_logprobs_};
    }
    ops_->Sample({.logits = logits,
                  .vocab = vocab_size_,
                  .rows = std::span(sample_rows_).first(n),
                  .out = std::span(sampled_).first(n)});
    SC_RETURN_IF_ERROR(ops_->Synchronize());
    for (size_t i = 0; i < n; ++i) {
      Report(meta, wants_[first + i], sample_rows_[i], sampled_[i], result);
    }
  }
  return absl::OkStatus();
}

void Sampler::CollectWants(const StepMetaView& meta, const StepBatch& batch,
                           const SlotTable& slots) {
  wants_.clear();
  for (size_t i = 0; i < meta.n_slots(); ++i) {
    const uint32_t slot = meta.slots[i];
    const SlotRecord& record = slots.sampling(slot).record;
    const int32_t first_row = batch.seq_starts[i];
    if (record.n_prompt_logprobs >= 0) {
      const auto tokens = slots.tokens(slot);
      // The row at position p - 1 says how likely prompt token p was.
      const uint32_t end = std::min(meta.starts[i] + meta.n_tokens[i], record.n_prompt - 1);
      for (uint32_t p = meta.starts[i] + 1; p <= end; ++p) {
        wants_.push_back({static_cast<uint32_t>(i),
                          first_row + static_cast<int32_t>(p - 1 - meta.starts[i]), tokens[p]});
      }
    }
    if (meta.samples(i)) {
      wants_.push_back({static_cast<uint32_t>(i), batch.seq_starts[i + 1] - 1, -1});
    }
  }
}

kernels::SampleRow Sampler::MakeRow(const StepMetaView& meta, const SlotTable& slots,
                                    const Want& want) {
  const uint32_t slot = meta.slots[want.plan_index];
  const SlotSamplingState& state = slots.sampling(slot);
  const SlotRecord& record = state.record;
  if (want.prompt_token >= 0) {
    return {.given_token = want.prompt_token, .n_logprobs = record.n_prompt_logprobs};
  }
  // Of the new token; generated ones follow the prompt.
  const uint32_t position = meta.starts[want.plan_index] + meta.n_tokens[want.plan_index];
  kernels::SampleRow row{.temperature = record.temperature,
                         .top_k = record.top_k,
                         .top_p = record.top_p,
                         .min_p = record.min_p,
                         .presence_penalty = record.presence_penalty,
                         .frequency_penalty = record.frequency_penalty,
                         .repetition_penalty = record.repetition_penalty,
                         .seed = record.seed,
                         .position = position,
                         .counts = state.counts,
                         .bias_ids = state.bias_ids,
                         .bias_values = state.bias_values,
                         .n_logprobs = record.n_logprobs};
  if (position - record.n_prompt < record.min_tokens) row.forbidden = state.stop_ids;
  if (!record.has_grammar()) return row;

  const TokenMask& mask = AwaitMask(slot);
  if (!mask.status.ok()) return row;
  row.allowed = mask.words;
  const auto allowed = [&](int32_t id) { return (mask.words[id / 32] >> (id % 32) & 1) != 0; };
  const auto n_forbidden = std::count_if(row.forbidden.begin(), row.forbidden.end(), allowed);
  // Where the grammar leaves nothing else, it wins.
  if (n_forbidden >= mask.n_allowed) row.forbidden = {};
  return row;
}

const TokenMask& Sampler::AwaitMask(uint32_t slot) {
  if (!masks_->IsReady(slot)) {
    clock_->Enter(StageState::kWaitMask);
    masks_->Await(slot);
    clock_->Enter(StageState::kCompute);
  }
  return masks_->Await(slot);
}

void Sampler::Report(const StepMetaView& meta, const Want& want, const kernels::SampleRow& row,
                     const kernels::SampledToken& sampled, v1::StepResult* result) {
  const uint32_t slot = meta.slots[want.plan_index];
  const int n_results = result->slots_size();
  v1::SlotResult* out = n_results > 0 && result->slots(n_results - 1).slot() == slot
                            ? result->mutable_slots(n_results - 1)
                            : result->add_slots();
  out->set_slot(slot);
  if (want.prompt_token >= 0) {
    FillLogprobs(row, sampled, out->add_prompt_logprobs());
    return;
  }
  out->set_sampled(true);
  out->set_token(sampled.token);
  if (row.n_logprobs >= 0) FillLogprobs(row, sampled, out->mutable_logprobs());
  if (masks_->Has(slot)) out->set_failure(std::string(masks_->Await(slot).status.message()));
  tokens_.push_back({slot, sampled.token});
}

}  // namespace stagecoach::worker
