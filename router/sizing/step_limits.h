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

inline int32_t DefaultGpuSequences(size_t n_stages) {
  return n_stages < 2 ? 256 : std::max(1024, 256 * static_cast<int32_t>(n_stages));
}

// Fills in what nobody has said, by what computes. A GPU's products are efficient with thousands of
// rows; on CPUs larger steps only keep decodes waiting. On GPUs sequences decode in a microbatch a
// stage, each with as many rows as one stage alone would have; where several stages have KV for
// more, more at once fill and drain the pipeline less often (two H200s, 1,000 requests at once:
// 1,024 sequences are 1.9% faster than 512). Stages on CPUs often share cores, and then one
// microbatch.
inline StepLimits WithDefaults(StepLimits limits, bool on_gpus, size_t n_stages) {
  if (limits.max_batched_tokens == 0) limits.max_batched_tokens = on_gpus ? 8192 : 512;
  if (limits.max_sequences == 0) {
    limits.max_sequences = on_gpus ? DefaultGpuSequences(n_stages) : 256;
  }
  if (limits.max_prefill_chunk == 0) limits.max_prefill_chunk = limits.max_batched_tokens;
  limits.max_prefill_chunk = std::min(limits.max_prefill_chunk, limits.max_batched_tokens);
  return limits;
}

}  // namespace stagecoach::router
