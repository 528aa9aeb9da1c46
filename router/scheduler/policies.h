// The scheduler's policies: constant function objects without state, so that each can be read and
// tested on its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/row_sizes.h"

namespace stagecoach::router {

// The number of microbatches into which decoding sequences are split. One per stage is the base.
// Then a stage idles, waiting for tokens, whenever a step took longer on another stage. One more
// microbatch hides this, but leaves fewer rows per microbatch to amortize the weight reads. That
// costs nothing while prompts fill the steps. (pipeline_sim: 1,000 prompts of 1,024 tokens at once
// finish 1.6% sooner with 2 stages, 3.4% with 4.)
struct Microbatches {
  // Prefill tokens that fill a step, as a multiple of break_even_rows.
  static constexpr int32_t kFilled = 6;

  int32_t n_stages;  // stages, or the configured n_microbatches
  bool plan_ahead;
  int32_t break_even_rows;

  int32_t operator()(int32_t n_prefill_tokens) const {
    const bool filled = n_prefill_tokens >= kFilled * break_even_rows;
    return n_stages + (plan_ahead && n_stages > 1 && filled ? 1 : 0);
  }
};

// Limit of microbatches in flight: normally one computing on each stage, and one planned.
struct InFlightLimit {
  bool plan_ahead;

  int32_t operator()(int32_t n_microbatches) const { return plan_ahead ? n_microbatches + 1 : 1; }
};

// Limit of the decodes in one step: an even share per microbatch, so that one turn of the pipeline
// decodes every sequence once. With one microbatch in flight, a turn is one step.
struct DecodeShare {
  bool plan_ahead;
  int32_t max_batched_tokens;

  int32_t operator()(int32_t n_decoding, int32_t n_microbatches) const {
    const int32_t n_steps = plan_ahead ? n_microbatches : 1;
    return std::min((n_decoding + n_steps - 1) / n_steps, max_batched_tokens);
  }
};

// Prompt tokens to prefill. Running prefills count in full, so that a prompt's chunks do not shrink
// while it is prefilled. The queue counts only for as many sequences as there are free slots, at
// its mean prompt length; otherwise slots that become free one by one would each be filled in one
// large step.
struct PrefillDemand {
  uint64_t operator()(uint64_t n_tokens_of_running, uint64_t n_tokens_of_queue, uint64_t n_queued,
                      uint64_t n_free_slots) const {
    if (n_queued <= n_free_slots) return n_tokens_of_running + n_tokens_of_queue;
    return n_tokens_of_running + n_tokens_of_queue * n_free_slots / n_queued;
  }
};

// Prefill tokens of one step. With chunks of c tokens, W tokens take W/c + S - 1 steps on S stages.
// Each step takes a time proportional to c + r^2/2c, where r is the number of rows whose GEMM takes
// as long as reading its weights. With large chunks, stages idle during the first and the last
// chunk; with small chunks, stages read the weights for few rows. The total is minimal near c^3 = W
// r^2 / (S - 1). W is the total, not the remainder: the steps pass through the stages in order, and
// all wait for the longest, so shorter steps behind it gain nothing.
//
// The budget shrinks as KV gets short, as in token throttling (Guo et al. 2025, gLLM). Together
// with the decodes of the step it is rounded to a row count for which GPU GEMMs are tuned: with
// 2,048 rows a stage took 5% less time per row than with 1,792 or 2,304.
struct PrefillBudget {
  static constexpr int32_t kMinTokens = 64;
  // At this fraction of free KV blocks, only kMinTokens remain.
  static constexpr double kFreeKvFloor = 0.05;

  int32_t n_microbatches;
  bool plan_ahead;
  int32_t max_batched_tokens;
  int32_t break_even_rows;

  // Whether the number of tokens to prefill matters. Microbatches asks for it only if it matters
  // here.
  static bool Counts(int32_t n_microbatches, bool plan_ahead) {
    return n_microbatches > 1 && plan_ahead;
  }

  int32_t operator()(uint64_t n_tokens_to_prefill, double free_kv_fraction,
                     int32_t n_decodes) const {
    if (!Counts(n_microbatches, plan_ahead)) return max_batched_tokens;
    const double best = std::cbrt(static_cast<double>(n_tokens_to_prefill) * break_even_rows *
                                  break_even_rows / (n_microbatches - 1));
    const double kv_scale = std::max(0.0, (free_kv_fraction - kFreeKvFloor) / (1 - kFreeKvFloor));
    const double limit = max_batched_tokens * kv_scale;
    const double n_rows = std::max<double>(kMinTokens, std::min(best, limit)) + n_decodes;
    const int32_t n_tokens = TunedRows(n_rows, /*nearest=*/best < limit) - n_decodes;
    return std::min(std::max(kMinTokens, n_tokens), max_batched_tokens);
  }

 private:
  // The tuned row count nearest to n_rows, or else the largest that is at most n_rows.
  static int32_t TunedRows(double n_rows, bool nearest) {
    int32_t rows = kMinTokens;
    while (RowSizeAfter(rows) <= n_rows) rows = RowSizeAfter(rows);
    const int32_t next = RowSizeAfter(rows);
    return nearest && next - n_rows <= n_rows - rows ? next : rows;
  }
};

// Free blocks per group that an admission must leave: one per running decode. Otherwise the next
// growth of the decodes preempts the newcomer, and its prefill is lost.
struct AdmissionHeadroom {
  uint32_t operator()(uint32_t n_decoding) const { return n_decoding; }
};

}  // namespace stagecoach::router
