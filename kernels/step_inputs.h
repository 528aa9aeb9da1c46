// One step as the layers see it, in device memory, and what a device keeps of each sequence from
// one step to the next: its block tables and the token last sampled for it.
//
// A stage says only what is new (StepBatch); Ops::BuildStep makes the rest from what is kept. Slots
// are the stage's numbers for sequences that hold KV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/dtype.h"

namespace stagecoach::kernels {

// In place of a token id: the token that was last sampled for the row's slot (SampleArgs::sampled).
inline constexpr int32_t kSampledToken = -1;

struct StepLimits {
  int32_t max_tokens = 0;        // rows of a step
  int32_t max_slots = 0;         // and sequences of a step
  int32_t max_blocks = 0;        // of one sequence in one KV group
  std::vector<int32_t> windows;  // by KV group, in tokens; 0: full attention
  int32_t n_heads = 1, n_kv_heads = 1, head_dim = 2;
  DType kv_dtype = DType::kF32;
  bool has_softcap = false;
  // Memory of the device that Attention may overwrite and that nobody else uses meanwhile.
  void* attention_scratch = nullptr;
  size_t attention_scratch_bytes = 0;
};

// One sequence's rows: consecutive positions.
struct StepSeq {
  int32_t slot;
  int32_t position;  // of the first row
  int32_t n_tokens;
};

// Entry `index` of a slot's block table: the block of positions [16 * index, 16 * index + 16).
struct NewBlock {
  int32_t group;
  int32_t slot;
  int32_t index;
  int32_t block;
};

// What is new in a step. Views of host memory, valid during the call that takes them.
struct StepBatch {
  std::span<const StepSeq> seqs;         // [S], each slot at most once
  std::span<const int32_t> token_ids;    // [T], on the stage that embeds; else empty
  std::span<const NewBlock> new_blocks;  // applied before the rows are built
  int32_t n_tokens = 0;                  // T: sum over seqs
  // Rows after them that mean nothing and leave nothing behind, so that a recording for T +
  // n_padding rows serves. Only where Ops::Record records.
  int32_t n_padding = 0;
};

// T: n_tokens, S: n_seqs. Pointers are to device memory. Made by Ops::NewStepInputs, which zeroes
// what is kept; a device may derive from it to keep its own plans.
struct StepInputs {
  virtual ~StepInputs() = default;

  // Of the step built last; rows include padding.
  int32_t n_tokens = 0;
  int32_t n_seqs = 0;
  int32_t* token_ids = nullptr;      // [T]
  int32_t* positions = nullptr;      // [T]
  int32_t* seq_starts = nullptr;     // [S + 1]: rows of sequence s are [s, s + 1) of it
  int32_t* seq_positions = nullptr;  // [S]: position of the sequence's first row
  int32_t* seq_slots = nullptr;      // [S]
  struct Group {
    int32_t* kv_slots = nullptr;      // [T]: block * kBlockTokens + offset
    int32_t* block_tables = nullptr;  // [max_slots, block_table_stride], kept; entries behind a
                                      // window and after a sequence's end mean nothing
  };
  std::vector<Group> groups;  // by KV group
  int32_t block_table_stride = 0;
  int32_t* sampled = nullptr;  // [max_slots], kept: the token last sampled for the slot
  size_t n_bytes = 0;
};

}  // namespace stagecoach::kernels
