// One step as a stage's layers see it: flat arrays, one entry a row (token) or a sequence.
#pragma once

#include <cstdint>
#include <span>

namespace stagecoach::worker {

// Views into arrays that the stage keeps; valid during the step. T rows, S sequences, G KV groups.
struct StepBatch {
  std::span<const int32_t> token_ids;      // [T]; stage 0 only
  std::span<const int32_t> positions;      // [T]
  std::span<const int32_t> seq_starts;     // [S + 1]
  std::span<const int32_t> seq_positions;  // [S]: position of the sequence's first row
  // By KV group.
  struct Group {
    std::span<const int32_t> kv_slots;      // [T]: block * 16 + offset
    std::span<const int32_t> block_tables;  // [S, block_table_stride]
    int32_t block_table_stride = 0;
  };
  std::span<const Group> groups;  // [G]

  int32_t n_tokens() const { return static_cast<int32_t>(positions.size()); }
  int32_t n_seqs() const { return static_cast<int32_t>(seq_positions.size()); }
};

}  // namespace stagecoach::worker
