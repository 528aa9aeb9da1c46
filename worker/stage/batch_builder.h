// From a step and the slot table to the arrays that the layers read. Preallocated; reused by every
// step. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/model/step_batch.h"
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
  // batch is complete.
  size_t FillTokens(const StepMetaView& meta, const SlotTable& slots);

  // Valid until the next Build.
  const StepBatch& batch() const { return batch_; }

 private:
  struct Group {
    std::vector<int32_t> kv_slots;            // [max_batched_tokens]
    std::unique_ptr<int32_t[]> block_tables;  // [max_sequences, max_blocks] at most
  };

  const StageLimits limits_;
  std::vector<int32_t> token_ids_;      // [max_batched_tokens]
  std::vector<int32_t> positions_;      // [max_batched_tokens]
  std::vector<int32_t> seq_starts_;     // [max_sequences + 1]
  std::vector<int32_t> seq_positions_;  // [max_sequences]
  std::vector<Group> groups_;
  std::vector<StepBatch::Group> group_views_;
  StepBatch batch_;
};

}  // namespace stagecoach::worker
