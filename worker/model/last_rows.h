// The rows of a step whose logits are wanted, as a step of their own. When a model's last keys and
// values are in the cache nobody reads its other rows any more: of a long prompt one row is left,
// and of a chunk in its middle none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/step_inputs.h"

namespace stagecoach::worker {

// One thread at a time. Preallocated.
class LastRows {
 public:
  explicit LastRows(int32_t max_sequences);

  // Whether the end of the last layer is for `rows` of the step alone, which rise: that is so where
  // many others are spared and no sequence has two. Not of a step of a row a sequence, which may be
  // replayed as it was recorded, with all rows.
  bool Choose(const kernels::StepBatch& step, std::span<const int32_t> rows);
  void ChooseAll() { chosen_ = false; }

  // Of the last choice.
  bool chosen() const { return chosen_; }
  // REQUIRES, as all that follow: chosen()
  std::span<const int32_t> rows() const { return rows_; }
  // Their tokens, a row each, with no new blocks.
  kernels::StepBatch step() const;
  // Of the step's row `row` among rows(). REQUIRES: it is one of them.
  int32_t IndexOf(int32_t row) const;

 private:
  bool chosen_ = false;
  std::vector<int32_t> rows_;
  std::vector<kernels::StepSeq> seqs_;
};

}  // namespace stagecoach::worker
