// Default limits of a step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "stagecoach/v1/load.pb.h"

namespace stagecoach::router {

inline int32_t DefaultGpuSequences(size_t n_stages) {
  return n_stages < 2 ? 256 : std::max(1024, 256 * static_cast<int32_t>(n_stages));
}

// Fills in unset limits of a step, depending on the device. GEMMs on a GPU are efficient with
// thousands of rows; on CPUs larger steps only delay decodes. On GPUs, sequences decode in one
// microbatch per stage, each with as many rows as a single stage would have. If several stages have
// KV memory for more, more concurrent sequences fill and drain the pipeline less often (two H200s,
// 1,000 requests at once: 1,024 sequences are 1.9% faster than 512). On CPUs, max_sequences does
// not grow with the stages: these often share cores, and then use one microbatch.
inline v1::LoadConfig WithDefaults(v1::LoadConfig config, bool on_gpus, size_t n_stages) {
  if (config.max_batched_tokens() == 0) config.set_max_batched_tokens(on_gpus ? 8192 : 512);
  if (config.max_sequences() == 0) {
    config.set_max_sequences(on_gpus ? DefaultGpuSequences(n_stages) : 256);
  }
  const int32_t most = config.max_batched_tokens();
  config.set_max_prefill_chunk(
      config.max_prefill_chunk() == 0 ? most : std::min(config.max_prefill_chunk(), most));
  return config;
}

}  // namespace stagecoach::router
