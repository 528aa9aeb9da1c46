// The rows of a step that need logits, as a separate step. Once the keys and values of the last
// layer that has some are in the KV cache, nothing reads the other rows. Of a long prompt one row
// remains; of a chunk in the middle of a prompt none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/step_inputs.h"

namespace stagecoach::worker {

// Use from one thread at a time. Preallocated.
class LastRows {
 public:
  explicit LastRows(int32_t max_sequences);

  // Decides whether the end of that layer, and layers after it, run only for `rows` of the step,
  // which must ascend. True if that saves many rows and no sequence has two of `rows`. Always false
  // for a step with one row per sequence, because such a step may be replayed as a CUDA graph with
  // all rows.
  bool Choose(const kernels::StepBatch& step, std::span<const int32_t> rows);
  void ChooseAll() { chosen_ = false; }

  // The result of the last Choose.
  bool chosen() const { return chosen_; }
  // REQUIRES, also for the following: chosen()
  std::span<const int32_t> rows() const { return rows_; }
  // The chosen tokens as a step: one row per sequence, no new blocks.
  kernels::StepBatch step() const;
  // Index of the step's row `row` in rows(). REQUIRES: `row` is one of them.
  int32_t IndexOf(int32_t row) const;

 private:
  bool chosen_ = false;
  std::vector<int32_t> rows_;
  std::vector<kernels::StepSeq> seqs_;
};

}  // namespace stagecoach::worker
