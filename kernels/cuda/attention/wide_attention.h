// Attention with heads of more than 256 numbers on the tensor cores: heads of 512 (Gemma 4), and
// latents. Of latents (LatentSpec; DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient
// Mixture-of-Experts Language Model", 2024) all query heads share one key, whose first numbers are
// the value: the absorbed form.
//
// One kernel computes prompts and decodes. The query heads of a token that share a KV head are rows
// of a tile, so decodes fill tiles, too. SharePrefill distributes tiles and keys over the CTAs.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/step_inputs.h"

namespace stagecoach::kernels::cuda {

// Rows per tile. A small tile takes less shared memory, and two of them run on an SM.
inline constexpr int32_t kWideRows = 64, kFewWideRows = 16;

// The heads that the kernel computes for a group; with value_dim 0 it does not support them.
WideShape WideShapeOf(const StepLimits& limits, const GroupLimits& group);

// Rows per tile of a step. rows_of_token: query heads per KV head. decodes_only: each sequence has
// one row.
int32_t WideTileRows(const Stream& stream, int32_t rows_of_token, bool decodes_only);
// CTAs of the kernel that run at the same time.
int32_t NWideBlocks(const Stream& stream, int32_t tile_rows);

// Sizes of AttentionMemory, and the number of part states that fit into it.
AttentionNeeds WideNeeds(const Stream& stream, const AttentionSetup& setup);
int32_t MaxWideStates(const Stream& stream, const AttentionSetup& setup, int32_t tile_rows);

// Attention of one call. REQUIRES: the plan is that of `setup`, which has a WideShape.
cudaError_t WideAttention(const Stream& stream, const AttentionArgs& args,
                          const AttentionPlan& plan, const AttentionSetup& setup,
                          const AttentionMemory& memory);

}  // namespace stagecoach::kernels::cuda
