// Builds the model's input from a step and the slot table. Preallocated and reused by every step.
// Use from one thread.
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

  // Fills in everything except the token ids. The step must already be applied to the table.
  void Build(const StepMetaView& meta, const SlotTable& slots);
  // First stage, after Build. Returns the number of sequences with unknown tokens; 0 means that the
  // batch is complete. sampled_here: this stage also samples, so that a decode whose token is not
  // yet known on the host takes it from the device.
  size_t FillTokens(const StepMetaView& meta, const SlotTable& slots, bool sampled_here);

  // Valid until the next Build.
  const kernels::StepBatch& batch() const { return batch_; }
  // Rows of the plan's slot i are [row_start(i), row_start(i + 1)).
  int32_t row_start(size_t i) const { return row_starts_[i]; }

 private:
  std::vector<int32_t> token_ids_;      // [max_batched_tokens]
  std::vector<kernels::StepSeq> seqs_;  // [max_sequences]
  std::vector<int32_t> row_starts_;     // [max_sequences + 1]
  std::vector<kernels::StateCopy> state_copies_;
  std::vector<kernels::StateSave> state_saves_;
  kernels::StepBatch batch_;
};

}  // namespace stagecoach::worker
