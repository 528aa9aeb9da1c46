// The largest step that a stage supports. All memory is allocated for these limits before the first
// step.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "stagecoach/v1/load.pb.h"

namespace stagecoach::worker {

struct StageLimits {
  v1::LoadConfig config;  // max_sequences is the number of slots
  int32_t vocab_size = 0;
  int32_t n_kv_groups = 1;
  bool pools_hidden = false;  // an embedding model: sequences get hidden states, else logits
  uint32_t n_states = 0;      // recurrent states: one per slot that is used, then saved ones

  int32_t max_blocks() const {  // of one sequence in one KV group
    return (config.max_model_len() + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  }
};

}  // namespace stagecoach::worker
