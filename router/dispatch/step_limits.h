// What a step may hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace stagecoach::router {

struct StepLimits {
  int32_t max_batched_tokens = 0;  // 0, as in the next two: see WithDefaults
  int32_t max_sequences = 0;       // that hold KV at once; more wait
  int32_t max_prefill_chunk = 0;   // tokens of one sequence; at most max_batched_tokens
};

// Fills in what nobody has said, by what computes. A GPU's products are efficient with thousands of
// rows; on CPUs larger steps only keep decodes waiting. On GPUs sequences decode in a microbatch a
// stage, each with as many rows as one stage alone would have; stages on CPUs often share cores,
// and then one microbatch.
inline StepLimits WithDefaults(StepLimits limits, bool on_gpus, size_t n_stages) {
  if (limits.max_batched_tokens == 0) limits.max_batched_tokens = on_gpus ? 8192 : 512;
  if (limits.max_sequences == 0) {
    limits.max_sequences = 256 * (on_gpus ? static_cast<int32_t>(n_stages) : 1);
  }
  if (limits.max_prefill_chunk == 0) limits.max_prefill_chunk = limits.max_batched_tokens;
  limits.max_prefill_chunk = std::min(limits.max_prefill_chunk, limits.max_batched_tokens);
  return limits;
}

}  // namespace stagecoach::router
