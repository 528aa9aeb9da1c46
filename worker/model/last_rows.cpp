#include "worker/model/last_rows.h"

#include <algorithm>

#include "common/check.h"

namespace stagecoach::worker {
namespace {

// Saving fewer rows costs more than preparing the inputs of a second step.
constexpr size_t kLeastSpared = 16;

}  // namespace

LastRows::LastRows(int32_t max_sequences) {
  rows_.reserve(static_cast<size_t>(max_sequences));
  seqs_.reserve(static_cast<size_t>(max_sequences));
}

bool LastRows::Choose(const kernels::StepBatch& step, std::span<const int32_t> rows) {
  chosen_ = false;
  const auto n_tokens = static_cast<size_t>(step.n_tokens);
  if (n_tokens == step.seqs.size()) return false;
  if (rows.size() > n_tokens / 2 || n_tokens - rows.size() < kLeastSpared) return false;
  rows_.assign(rows.begin(), rows.end());
  seqs_.clear();
  int32_t begin = 0;
  auto row = rows.begin();
  for (const kernels::StepSeq& seq : step.seqs) {
    const int32_t end = begin + seq.n_tokens;
    if (row != rows.end() && *row < end) {
      seqs_.push_back({.slot = seq.slot, .position = seq.position + *row - begin, .n_tokens = 1});
      ++row;
    }
    if (row != rows.end() && *row < end) return false;
    begin = end;
  }
  SC_CHECK(row == rows.end());
  chosen_ = true;
  return true;
}

kernels::StepBatch LastRows::step() const {
  SC_CHECK(chosen_);
  return {.seqs = seqs_, .n_tokens = static_cast<int32_t>(seqs_.size())};
}

int32_t LastRows::IndexOf(int32_t row) const {
  const auto found = std::lower_bound(rows_.begin(), rows_.end(), row);
  SC_CHECK(chosen_ && found != rows_.end() && *found == row);
  return static_cast<int32_t>(found - rows_.begin());
}

}  // namespace stagecoach::worker
