// The largest step that a stage supports. All memory is allocated for these limits before the first
// step.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace stagecoach::worker {

struct StageLimits {
  int32_t max_batched_tokens = 512;
  int32_t max_sequences = 64;    // slots
  int32_t max_model_len = 2048;  // tokens
  int32_t max_logprobs = 20;
  int32_t vocab_size = 0;
  int32_t n_kv_groups = 1;

  int32_t max_blocks() const {  // of one sequence in one KV group
    return (max_model_len + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  }
};

}  // namespace stagecoach::worker
