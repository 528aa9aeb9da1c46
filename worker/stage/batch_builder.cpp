#include "worker/stage/batch_builder.h"

#include <algorithm>

#include "common/kv_block.h"

namespace stagecoach::worker {

BatchBuilder::BatchBuilder(const StageLimits& limits)
    : token_ids_(limits.config.max_batched_tokens()),
      seqs_(limits.config.max_sequences()),
      row_starts_(limits.config.max_sequences() + 1) {}

void BatchBuilder::Build(const StepMetaView& meta, const SlotTable& slots) {
  const size_t n_seqs = meta.n_slots();
  int32_t row = 0;
  for (size_t s = 0; s < n_seqs; ++s) {
    seqs_[s] = {.slot = static_cast<int32_t>(meta.slots[s]),
                .position = static_cast<int32_t>(meta.starts[s]),
                .n_tokens = static_cast<int32_t>(meta.n_tokens[s])};
    row_starts_[s] = row;
    row += seqs_[s].n_tokens;
  }
  row_starts_[n_seqs] = row;
  batch_ = {.seqs = std::span(seqs_).first(n_seqs),
            .token_ids = {},
            .new_blocks = slots.new_blocks(),
            .n_tokens = row};
  state_copies_.clear();
  for (const SlotRecord& record : meta.registrations) {
    if (record.from_state == 0) continue;
    state_copies_.push_back({.from = static_cast<int32_t>(record.from_state - 1),
                             .to = static_cast<int32_t>(record.slot)});
  }
  state_saves_.clear();
  for (size_t s = 0; s < n_seqs; ++s) {
    if (meta.save_state(s) == 0) continue;
    const uint32_t position =
        SavedPosition(meta.starts[s], meta.starts[s] + meta.n_tokens[s], meta.samples(s));
    state_saves_.push_back({.seq = static_cast<int32_t>(s),
                            .n_rows = static_cast<int32_t>(position - meta.starts[s]),
                            .to = static_cast<int32_t>(meta.save_state(s) - 1)});
  }
  batch_.state_copies = state_copies_;
  batch_.state_saves = state_saves_;
}

size_t BatchBuilder::FillTokens(const StepMetaView& meta, const SlotTable& slots,
                                bool sampled_here) {
  size_t n_missing = 0;
  for (size_t s = 0; s < meta.n_slots(); ++s) {
    const auto tokens = slots.tokens(meta.slots[s]);
    int32_t* const to = token_ids_.data() + row_starts_[s];
    if (tokens.size() >= size_t{meta.starts[s]} + meta.n_tokens[s]) {
      std::copy_n(tokens.begin() + meta.starts[s], meta.n_tokens[s], to);
    } else if (sampled_here && meta.n_tokens[s] == 1) {
      *to = kernels::kSampledToken;
    } else {
      ++n_missing;
    }
  }
  batch_.token_ids = std::span(token_ids_).first(static_cast<size_t>(batch_.n_tokens));
  return n_missing;
}

}  // namespace stagecoach::worker
