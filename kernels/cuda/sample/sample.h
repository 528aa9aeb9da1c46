// Sampling on the device. Only the drawn token and requested log-probabilities go to the host.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace stagecoach::kernels::cuda {

// A SampleRow as the kernel reads it. Its lists are ranges of the arrays in SampleRows.
struct DeviceSampleRow {
  uint64_t seed, position;
  SampledToken* out;
  const uint32_t* allowed;  // [(vocab + 31) / 32] as in SampleRow, in device memory; null: all
  SampleParams params;
  int32_t first_count, n_counts;
  int32_t first_forbidden, n_forbidden;
  int32_t first_bias, n_bias;
  int32_t given_token, slot, n_logprobs;
};

// All pointers are to memory that the device can access.
struct SampleRows {
  float* logits;  // [R, vocab]; edited in place
  int32_t vocab;
  int32_t n_rows;               // R
  const DeviceSampleRow* rows;  // [R]
  const TokenCount* counts;
  const int32_t* forbidden;
  const int32_t* bias_ids;
  const float* bias_values;
  // Logits before the edits: [n_counts], [n_forbidden], [number of biases], for the arrays above.
  float* originals;
  int32_t n_counts, n_forbidden;  // lengths of the arrays
  int32_t* sampled;               // StepInputs::sampled, or null
};

// One CTA per row. n_logprobs must be <= kMaxTop.
cudaError_t Sample(const Stream& stream, const SampleRows& rows);
inline constexpr int32_t kMaxTop = 4096;

}  // namespace stagecoach::kernels::cuda
