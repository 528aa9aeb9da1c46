#include "worker/stage/pooler.h"

#include <utility>

#include "common/status.h"

namespace stagecoach::worker {

absl::StatusOr<std::unique_ptr<PendingPool>> PendingPool::Allocate(const StageModel& model,
                                                                   kernels::Ops* ops) {
  auto pending = std::make_unique<PendingPool>();
  const size_t n_rows = static_cast<size_t>(model.max_logit_rows());
  const size_t n_values = n_rows * static_cast<size_t>(model.spec().hidden_size);
  SC_ASSIGN_OR_RETURN(pending->memory_, ops->AllocateHost(n_values * sizeof(float)));
  return pending;
}

Pooler::Pooler(const StageLimits& limits, StageModel* model, kernels::Ops* ops)
    : hidden_size_(static_cast<size_t>(model->spec().hidden_size)),
      model_(model),
      ops_(ops),
      sums_(static_cast<size_t>(limits.config.max_sequences())) {}

std::span<const int32_t> Pooler::ChooseRows(const StepMetaView& meta, const BatchBuilder& batch,
                                            const SlotTable& slots) {
  parts_.clear();
  rows_.clear();
  for (size_t i = 0; i < meta.n_slots(); ++i) {
    const bool mean =
        slots.sampling(meta.slots[i]).sampling.pooling().what() == v1::SlotPooling::MEAN_HIDDEN;
    if (!mean && !meta.samples(i)) continue;
    const int32_t end = batch.row_start(i + 1);
    const int32_t first = mean ? batch.row_start(i) : end - 1;
    for (int32_t row = first; row < end; ++row) rows_.push_back(row);
    const auto n_rows = static_cast<uint32_t>(end - first);
    parts_.push_back({.slot = meta.slots[i],
                      .start = meta.starts[i],
                      .n_rows = n_rows,
                      .is_mean = mean,
                      .is_last = meta.samples(i)});
  }
  return rows_;
}

void Pooler::Start(const StepMetaView& meta, const float* hidden, PendingPool* pending) {
  pending->result_.Clear();
  pending->result_.set_epoch(meta.epoch);
  pending->result_.set_step(meta.step);
  pending->tokens_.clear();
  pending->parts_ = parts_;
  if (rows_.empty()) return;
  ops_->DownloadLater(model_->FinalHidden(hidden, rows_), pending->memory_.data.get(),
                      rows_.size() * hidden_size_ * sizeof(float));
}

void Pooler::Add(const PendingPool::Part& part, const float* row, v1::SlotResult* out) {
  std::vector<double>& sum = sums_[part.slot];
  if (part.start == 0) sum.assign(hidden_size_, 0);
  for (uint32_t r = 0; r < part.n_rows; ++r, row += hidden_size_) {
    for (size_t i = 0; i < hidden_size_; ++i) sum[i] += static_cast<double>(row[i]);
  }
  if (out == nullptr) return;
  const double n_rows = part.start + part.n_rows;
  for (const double value : sum) out->add_values(static_cast<float>(value / n_rows));
}

v1::StepResult Pooler::Finish(PendingPool* pending, std::span<const TokenRecord>* tokens) {
  const float* row = pending->memory_.As<float>();
  for (const PendingPool::Part& part : pending->parts_) {
    v1::SlotResult* const out = part.is_last ? pending->result_.add_slots() : nullptr;
    if (part.is_mean) {
      Add(part, row, out);
    } else {
      out->mutable_values()->Add(row, row + hidden_size_);
    }
    row += part.n_rows * hidden_size_;
    if (out == nullptr) continue;
    out->set_slot(part.slot);
    out->set_sampled(true);
    pending->tokens_.push_back({part.slot, 0});
  }
  *tokens = pending->tokens_;
  return std::move(pending->result_);
}

}  // namespace stagecoach::worker
