#include "worker/stage/sampler.h"

#include <algorithm>
#include <new>
#include <utility>

#include "common/status.h"

namespace stagecoach::worker {
namespace {

template <typename T>
std::span<const T> ToSpan(const google::protobuf::RepeatedField<T>& values) {
  return {values.data(), static_cast<size_t>(values.size())};
}

void FillLogprobs(int32_t n_logprobs, const kernels::SampledToken& sampled, v1::Logprobs* out) {
  out->set_chosen(sampled.logprob);
  for (int32_t i = 0; i < n_logprobs; ++i) {
    if (sampled.top_ids[i] < 0) break;  // more were asked for than the vocabulary has
    out->add_top_ids(sampled.top_ids[i]);
    out->add_top(sampled.top_logprobs[i]);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PendingSamples>> PendingSamples::Allocate(const StageLimits& limits,
                                                                         const StageModel& model,
                                                                         kernels::Ops* ops) {
  const size_t n_rows = static_cast<size_t>(model.max_logit_rows());
  const size_t n_top = n_rows * static_cast<size_t>(limits.config.max_logprobs());
  auto pending = std::make_unique<PendingSamples>();
  const size_t n_logits = n_rows * kMostPooledLogits;
  SC_ASSIGN_OR_RETURN(
      pending->memory_,
      ops->AllocateHost(n_rows * sizeof(kernels::SampledToken) +
                        n_top * (sizeof(int32_t) + sizeof(float)) + n_logits * sizeof(float)));
  pending->sampled_ = {pending->memory_.As<kernels::SampledToken>(), n_rows};
  auto* const top_ids = reinterpret_cast<int32_t*>(pending->sampled_.data() + n_rows);
  auto* const top_logprobs = reinterpret_cast<float*>(top_ids + n_top);
  pending->logits_ = top_logprobs + n_top;
  for (size_t i = 0; i < n_rows; ++i) {
    const size_t first = i * static_cast<size_t>(limits.config.max_logprobs());
    new (&pending->sampled_[i])
        kernels::SampledToken{.top_ids = top_ids + first, .top_logprobs = top_logprobs + first};
  }
  pending->rows_.reserve(n_rows);
  pending->tokens_.reserve(limits.config.max_sequences());
  return pending;
}

Sampler::Sampler(const StageLimits& limits, StageModel* model, kernels::Ops* ops,
                 GrammarMasks* masks, StageClock* clock)
    : vocab_size_(model->spec().vocab_size),
      model_(model),
      ops_(ops),
      masks_(masks),
      clock_(clock) {
  const size_t n_rows = static_cast<size_t>(model->max_logit_rows());
  wants_.reserve(limits.config.max_batched_tokens());
  rows_.reserve(limits.config.max_batched_tokens());
  sample_rows_.resize(n_rows);
}

bool Sampler::NeedsTokens(const StepMetaView& meta, size_t i, const SlotTable& slots) {
  const SlotSamplingState& state = slots.sampling(meta.slots[i]);
  return meta.samples(i) && (state.has_penalties() || state.sampling.has_grammar());
}

absl::Status Sampler::Start(const StepMetaView& meta, const SlotTable& slots, const float* hidden,
                            PendingSamples* pending) {
  pending->result_.Clear();
  pending->result_.set_epoch(meta.epoch);
  pending->result_.set_step(meta.step);
  pending->tokens_.clear();
  pending->rows_.clear();
  for (size_t first = 0; first < wants_.size(); first += sample_rows_.size()) {
    if (first > 0) {
      SC_RETURN_IF_ERROR(ops_->Wait(ops_->Mark()));
      Report(pending);
    }
    const size_t n = std::min(sample_rows_.size(), wants_.size() - first);
    float* const logits = model_->Logits(hidden, std::span(rows_).subspan(first, n));
    // After the logits are on their way: masks are computed meanwhile.
    for (size_t i = 0; i < n; ++i) {
      const Want& want = wants_[first + i];
      const uint32_t slot = meta.slots[want.plan_index];
      sample_rows_[i] = MakeRow(meta, slots, want);
      PendingSamples::Row& row = pending->rows_.emplace_back();
      row = {.slot = slot,
             .is_prompt = want.prompt_token >= 0,
             .n_logprobs = sample_rows_[i].n_logprobs,
             .n_logits = CopyLogits(logits + i * static_cast<size_t>(vocab_size_), slots, want,
                                    slot, pending->logits_ + i * kMostPooledLogits),
             .failure = {}};
      if (!row.is_prompt && masks_->Has(slot)) {
        row.failure = std::string(masks_->Await(slot).status.message());
      }
    }
    ops_->Sample({.logits = logits,
                  .vocab = vocab_size_,
                  .rows = std::span(sample_rows_).first(n),
                  .out = pending->sampled_.first(n),
                  .sampled = model_->sampled_tokens()});
  }
  return absl::OkStatus();
}

v1::StepResult Sampler::Finish(PendingSamples* pending, std::span<const TokenRecord>* tokens) {
  Report(pending);
  *tokens = pending->tokens_;
  return std::move(pending->result_);
}

std::span<const int32_t> Sampler::ChooseRows(const StepMetaView& meta, const BatchBuilder& batch,
                                             const SlotTable& slots) {
  wants_.clear();
  rows_.clear();
  const auto want = [&](size_t plan_index, int32_t row, int32_t prompt_token) {
    wants_.push_back({static_cast<uint32_t>(plan_index), prompt_token});
    rows_.push_back(row);
  };
  for (size_t i = 0; i < meta.n_slots(); ++i) {
    const uint32_t slot = meta.slots[i];
    const SlotSamplingState& state = slots.sampling(slot);
    const int32_t first_row = batch.row_start(i);
    if (state.sampling.n_prompt_logprobs() >= 0) {
      const auto tokens = slots.tokens(slot);
      // The row at position p - 1 says how likely prompt token p was.
      const uint32_t end = std::min(meta.starts[i] + meta.n_tokens[i], state.n_prompt - 1);
      for (uint32_t p = meta.starts[i] + 1; p <= end; ++p) {
        want(i, first_row + static_cast<int32_t>(p - 1 - meta.starts[i]), tokens[p]);
      }
    }
    if (meta.samples(i)) {
      want(i, batch.row_start(i + 1) - 1, -1);
    }
  }
  return rows_;
}

kernels::SampleRow Sampler::MakeRow(const StepMetaView& meta, const SlotTable& slots,
                                    const Want& want) {
  const uint32_t slot = meta.slots[want.plan_index];
  const SlotSamplingState& state = slots.sampling(slot);
  const v1::SlotSampling& sampling = state.sampling;
  if (want.prompt_token >= 0) {
    return {.given_token = want.prompt_token, .n_logprobs = sampling.n_prompt_logprobs()};
  }
  // Of the new token; generated ones follow the prompt.
  const uint32_t position = meta.starts[want.plan_index] + meta.n_tokens[want.plan_index];
  kernels::SampleRow row{.params = state.params,
                         .seed = sampling.seed(),
                         .position = position,
                         .counts = state.counts,
                         .bias_ids = ToSpan(sampling.bias_ids()),
                         .bias_values = ToSpan(sampling.bias_values()),
                         .slot = static_cast<int32_t>(meta.slots[want.plan_index]),
                         .n_logprobs = sampling.n_logprobs()};
  if (position - state.n_prompt < sampling.min_tokens()) {
    row.forbidden = ToSpan(sampling.stop_ids());
  }
  if (!sampling.has_grammar()) return row;

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

int32_t Sampler::CopyLogits(const float* logits, const SlotTable& slots, const Want& want,
                            uint32_t slot, float* to) {
  if (want.prompt_token >= 0) return 0;
  const auto& ids = slots.sampling(slot).sampling.pooling().logit_ids();
  for (const int32_t id : ids) ops_->DownloadLater(logits + id, to++, sizeof(float));
  return ids.size();
}

void Sampler::Report(PendingSamples* pending) {
  v1::StepResult& result = pending->result_;
  for (size_t i = 0; i < pending->rows_.size(); ++i) {
    const PendingSamples::Row& row = pending->rows_[i];
    const kernels::SampledToken& sampled = pending->sampled_[i];
    const int n_results = result.slots_size();
    v1::SlotResult* out = n_results > 0 && result.slots(n_results - 1).slot() == row.slot
                              ? result.mutable_slots(n_results - 1)
                              : result.add_slots();
    out->set_slot(row.slot);
    if (row.is_prompt) {
      FillLogprobs(row.n_logprobs, sampled, out->add_prompt_logprobs());
      continue;
    }
    out->set_sampled(true);
    out->set_token(sampled.token);
    if (row.n_logprobs >= 0) FillLogprobs(row.n_logprobs, sampled, out->mutable_logprobs());
    if (!row.failure.empty()) out->set_failure(row.failure);
    const float* const logits = pending->logits_ + i * kMostPooledLogits;
    out->mutable_values()->Add(logits, logits + row.n_logits);
    pending->tokens_.push_back({row.slot, sampled.token});
  }
  pending->rows_.clear();
}

}  // namespace stagecoach::worker
