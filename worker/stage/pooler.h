// The last stage's end of a step of an embedding model: final hidden states of the rows that count,
// and each sequence's vector at the end of its prompt. Takes the place of the Sampler.
//
// Start queues it all on the device and Finish, when the device is done, makes the result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "stagecoach/v1/step.pb.h"
#include "worker/model/stage_model.h"
#include "worker/stage/batch_builder.h"
#include "worker/stage/sampler.h"
#include "worker/stage/slot_table.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// A step's hidden states between Start and Finish.
class PendingPool {
 public:
  static absl::StatusOr<std::unique_ptr<PendingPool>> Allocate(const StageModel& model,
                                                               kernels::Ops* ops);

 private:
  friend class Pooler;
  struct Part {
    uint32_t slot = 0;
    uint32_t start = 0;    // the sequence's first position in the step
    uint32_t n_rows = 0;   // its rows in memory_, after those of the parts before
    bool is_mean = false;  // adds all its rows up; else it has its last row alone
    bool is_last = false;  // the prompt ends
  };
  std::vector<Part> parts_;
  v1::StepResult result_;
  std::vector<TokenRecord> tokens_;
  kernels::Buffer memory_;  // [max_logit_rows, hidden_size] float32
};

class Pooler {
 public:
  // `model` (which is the last stage's) and `ops` outlive the pooler.
  Pooler(const StageLimits& limits, StageModel* model, kernels::Ops* ops);

  // As Sampler::ChooseRows.
  std::span<const int32_t> ChooseRows(const StepMetaView& meta, const BatchBuilder& batch,
                                      const SlotTable& slots);
  // As Sampler::Start.
  void Start(const StepMetaView& meta, const float* hidden, PendingPool* pending);
  // As Sampler::Finish, in the order of the steps. Adds rows up in the order of positions, so that
  // a mean does not depend on the chunks. The tokens only say that the slots have ended.
  v1::StepResult Finish(PendingPool* pending, std::span<const TokenRecord>* tokens);

 private:
  // Adds the rows of a mean. `out` gets the vector; null: the prompt goes on.
  void Add(const PendingPool::Part& part, const float* row, v1::SlotResult* out);

  const size_t hidden_size_;
  StageModel* const model_;
  kernels::Ops* const ops_;
  // These two are the current step's; rows_ has at most max_logit_rows.
  std::vector<PendingPool::Part> parts_;
  std::vector<int32_t> rows_;
  // Thread of Finish. By slot: sums of the rows so far, for means; empty before the first.
  std::vector<std::vector<double>> sums_;
};

}  // namespace stagecoach::worker
