#include "worker/stage/batch_builder.h"

#include <algorithm>

#include "kernels/ops.h"

namespace stagecoach::worker {
namespace {

using kernels::kBlockTokens;

int32_t BlocksFor(uint32_t n_tokens) {
  return static_cast<int32_t>((n_tokens + kBlockTokens - 1) / kBlockTokens);
}

}  // namespace

BatchBuilder::BatchBuilder(const StageLimits& limits)
    : limits_(limits),
      token_ids_(limits.max_batched_tokens),
      positions_(limits.max_batched_tokens),
      seq_starts_(limits.max_sequences + 1),
      seq_positions_(limits.max_sequences),
      groups_(limits.n_kv_groups),
      group_views_(limits.n_kv_groups) {
  for (Group& group : groups_) {
    group.kv_slots.resize(limits.max_batched_tokens);
    group.block_tables = std::make_unique_for_overwrite<int32_t[]>(size_t(limits.max_sequences) *
                                                                   limits.max_blocks());
  }
}

void BatchBuilder::Build(const StepMetaView& meta, const SlotTable& slots) {
  const size_t n_seqs = meta.n_slots();
  int32_t stride = 1;  // of the longest sequence in this step
  int32_t row = 0;
  for (size_t s = 0; s < n_seqs; ++s) {
    seq_starts_[s] = row;
    seq_positions_[s] = static_cast<int32_t>(meta.starts[s]);
    stride = std::max(stride, BlocksFor(meta.starts[s] + meta.n_tokens[s]));
    for (uint32_t i = 0; i < meta.n_tokens[s]; ++i) {
      positions_[row++] = static_cast<int32_t>(meta.starts[s] + i);
    }
  }
  seq_starts_[n_seqs] = row;

  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    for (size_t s = 0; s < n_seqs; ++s) {
      const auto blocks = slots.blocks(meta.slots[s], g);
      const int32_t n_used = BlocksFor(meta.starts[s] + meta.n_tokens[s]);
      int32_t* table = group.block_tables.get() + s * stride;
      std::copy_n(blocks.begin(), n_used, table);
      std::fill_n(table + n_used, stride - n_used, -1);
      for (int32_t r = seq_starts_[s]; r < seq_starts_[s + 1]; ++r) {
        const int32_t position = positions_[r];
        group.kv_slots[r] = table[position / kBlockTokens] * kBlockTokens + position % kBlockTokens;
      }
    }
    group_views_[g] = {
        std::span(group.kv_slots).first(row), {group.block_tables.get(), n_seqs * stride}, stride};
  }
  batch_ = {.token_ids = std::span(token_ids_).first(row),
            .positions = std::span(positions_).first(row),
            .seq_starts = std::span(seq_starts_).first(n_seqs + 1),
            .seq_positions = std::span(seq_positions_).first(n_seqs),
            .groups = group_views_};
}

size_t BatchBuilder::FillTokens(const StepMetaView& meta, const SlotTable& slots) {
  size_t n_missing = 0;
  for (size_t s = 0; s < meta.n_slots(); ++s) {
    const auto tokens = slots.tokens(meta.slots[s]);
    if (tokens.size() < size_t{meta.starts[s]} + meta.n_tokens[s]) {
      ++n_missing;
    } else {
      std::copy_n(tokens.begin() + meta.starts[s], meta.n_tokens[s],
                  token_ids_.begin() + seq_starts_[s]);
    }
  }
  return n_missing;
}

}  // namespace stagecoach::worker
