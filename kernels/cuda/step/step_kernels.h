// Builds the rows of a step on the device from the kept state of the sequences and the changes.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/recurrent/recurrence.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels::cuda {

inline constexpr int32_t kMaxKvGroups = 16;

// All pointers are to memory that the device can access.
struct StepParams {
  // The changes: [n_seqs]; [n_seqs + 1]; [n_tokens], the sequence of each row; [n_tokens] or null.
  const StepSeq* new_seqs;
  const int32_t *new_starts, *row_seqs, *new_token_ids;
  const NewBlock* new_blocks;        // [n_new_blocks]
  const PlannedDecode* new_decodes;  // [n_decodes]
  const int32_t* new_unit_starts;    // [n_groups, n_decodes + 1]
  const DecodeShare* new_shares;     // [n_groups, n_shares]
  const int32_t* new_hopper;         // [n_hopper]: the arrays of HopperPlan, one after another
  const SeqSave* new_saves;          // [n_seqs] or null
  int32_t n_hopper;
  int32_t n_shares;  // 0: units are fixed
  int32_t n_new_blocks, n_seqs, n_tokens, n_decodes, n_groups;
  int32_t n_rows;  // n_tokens plus padding rows, which have no KV slot
  // Outputs, kept between steps: see StepInputs and AttentionPlan.
  int32_t *token_ids, *positions, *seq_starts, *seq_positions, *seq_slots;
  int32_t *n_seqs_out, *n_decodes_out;
  PlannedDecode* decodes;
  int32_t* hopper;
  SeqSave* saves;  // see RecurrencePlan
  struct Group {
    int32_t *kv_slots, *block_tables, *unit_starts;
    DecodeShare* shares;
    int32_t* part_starts;
    PrefillPart* parts;
    PrefillMerge* merges;
    // The changes.
    const int32_t* new_part_starts;  // [n_part_starts]
    const PrefillPart* new_parts;    // [n_parts]
    const PrefillMerge* new_merges;  // [n_merges]
    int32_t n_part_starts, n_parts, n_merges;
  } groups[kMaxKvGroups];
  const int32_t* sampled;
  int32_t block_table_stride;
};

// Writes new_blocks into the block tables.
cudaError_t ApplyNewBlocks(const Stream& stream, const StepParams& params);
// Builds everything else. Call after ApplyNewBlocks.
cudaError_t BuildRows(const Stream& stream, const StepParams& params);

}  // namespace stagecoach::kernels::cuda
