// From a step and the slot table to what the model is told of it. Preallocated; reused by every
// step. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/step_inputs.h"
#include "worker/stage/slot_table.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

class BatchBuilder {
 public:
  explicit BatchBuilder(const StageLimits& limits);

  // Everything but the token ids. The table has the step applied.
  void Build(const StepMetaView& meta, const SlotTable& slots);
  // First stage, after Build: the number of sequences whose tokens are not all known yet. 0: the
  // batch is complete. sampled_here: this stage samples, so that a decode whose token is not known
  // yet takes it from the device.
  size_t FillTokens(const StepMetaView& meta, const SlotTable& slots, bool sampled_here);

  // Valid until the next Build.
  const kernels::StepBatch& batch() const { return batch_; }
  // Of the plan's slot i: its rows are [row_start(i), row_start(i + 1)).
  int32_t row_start(size_t i) const { return row_starts_[i]; }

 private:
  std::vector<int32_t> token_ids_;      // [max_batched_tokens]
  std::vector<kernels::StepSeq> seqs_;  // [max_sequences]
  std::vector<int32_t> row_starts_;     // [max_sequences + 1]
  kernels::StepBatch batch_;
};

}  // namespace stagecoach::worker
