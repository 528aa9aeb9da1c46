// The inputs of one step in device memory, and the per-sequence state that a device keeps between
// steps: block tables and the last sampled token.
//
// A stage passes only the changes (StepBatch). Ops::BuildStep computes the rest from the kept
// state. A slot is the stage's index for a sequence that holds KV.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/dtype.h"
#include "common/key_window.h"

namespace stagecoach::kernels {

// Replaces a token id: use the last sampled token of the row's slot (SampleArgs::sampled).
inline constexpr int32_t kSampledToken = -1;

// A KV group. 0: the heads of the limits
struct GroupLimits {
  KeyWindow window;
  int32_t n_kv_heads = 0, head_dim = 0;
  int32_t latent_rank = 0;  // AttentionArgs::value_dim of latents; 0: keys and values
};

struct StepLimits {
  int32_t max_tokens = 0;  // rows per step
  int32_t max_slots = 0;   // sequences that hold KV, and sequences per step
  int32_t max_blocks = 0;  // per sequence and KV group
  std::vector<GroupLimits> groups;
  int32_t n_heads = 1, n_kv_heads = 1, head_dim = 2;
  DType act_dtype = DType::kF32;  // the model's; a device may compute in another one
  DType kv_dtype = DType::kF32;   // act_dtype or kFp8
  bool has_softcap = false;
  bool has_states = false;  // recurrent states
  // Device memory that Attention may overwrite. Nothing else may use it while a step runs.
  void* attention_scratch = nullptr;
  size_t attention_scratch_bytes = 0;
};

// Whether the group's layers have keys and values with the heads of the limits.
inline bool HasUsualHeads(const StepLimits& limits, const GroupLimits& group) {
  return group.latent_rank == 0 && (group.head_dim == 0 || group.head_dim == limits.head_dim) &&
         (group.n_kv_heads == 0 || group.n_kv_heads == limits.n_kv_heads);
}
// Whether that is so for a group without a window.
inline bool HasUsualFullGroup(const StepLimits& limits) {
  return std::any_of(limits.groups.begin(), limits.groups.end(), [&](const GroupLimits& group) {
    return group.window == 0 && HasUsualHeads(limits, group);
  });
}

// The rows of one sequence: consecutive positions.
struct StepSeq {
  int32_t slot;
  int32_t position;  // position of the first row
  int32_t n_tokens;
};

// Entry `index` of a slot's block table: the KV block of positions [16 * index, 16 * index + 16).
struct NewBlock {
  int32_t group;
  int32_t slot;
  int32_t index;
  int32_t block;
};

// Copies a recurrent state. The working state of a sequence has the number of its slot.
struct StateCopy {
  int32_t from;
  int32_t to;
};

// Keeps a sequence's recurrent state as it is after its first n_rows rows of the step, as state
// `to`.
struct StateSave {
  int32_t seq;  // index into StepBatch::seqs
  int32_t n_rows;
  int32_t to;
};

// The changes of one step. The spans view host memory and must stay valid during the call.
struct StepBatch {
  std::span<const StepSeq> seqs;         // [S], each slot at most once
  std::span<const int32_t> token_ids;    // [T] on the stage that embeds; else empty
  std::span<const NewBlock> new_blocks;  // applied before the rows are built
  int32_t n_tokens = 0;                  // T: sum of n_tokens over seqs
  // Padding rows after the T rows, so that a recording for T + n_padding rows can be replayed.
  // Their results are undefined and they write nothing to the KV cache. Must be 0 unless
  // Ops::Record records.
  int32_t n_padding = 0;
  std::span<const StateCopy> state_copies;  // before the first layer
  std::span<const StateSave> state_saves;   // by `seq`, ascending
};

// T: n_tokens, S: n_seqs. Pointers are to device memory. Ops::NewStepInputs creates it and zeroes
// the kept state. A device may derive from it to store its own plans.
struct StepInputs {
  virtual ~StepInputs() = default;

  // Sizes and arrays of the last built step; rows include padding.
  int32_t n_tokens = 0;
  int32_t n_seqs = 0;
  int32_t* token_ids = nullptr;   // [T]
  int32_t* positions = nullptr;   // [T]
  int32_t* seq_starts = nullptr;  // [S + 1]: sequence s has rows [seq_starts[s], seq_starts[s + 1])
  int32_t* seq_positions = nullptr;  // [S]: position of the sequence's first row
  int32_t* seq_slots = nullptr;      // [S]
  struct Group {
    int32_t* kv_slots = nullptr;  // [T]: block * kBlockTokens + offset
    // [max_slots, block_table_stride], kept between steps. Entries before the window and after the
    // end of a sequence may hold any value.
    int32_t* block_tables = nullptr;
  };
  std::vector<Group> groups;  // per KV group
  int32_t block_table_stride = 0;
  int32_t* sampled = nullptr;  // [max_slots], kept: last sampled token per slot
  size_t n_bytes = 0;
};

}  // namespace stagecoach::kernels
