// The scheduler's policies: const function objects without state, so that each can be read and
// tested alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/row_sizes.h"

namespace stagecoach::router {

// The parts that sequences are decoded in, one after the other: one a stage. A stage then waits for
// tokens to come back whenever a step took another stage longer. One more hides that, but each
// then has fewer rows for the weights that it reads; which is no loss as long as prompts fill the
// steps. (pipeline_sim: 1,000 prompts of 1,024 at once end 1.6% sooner at 2 stages, 3.4% at 4.)
struct Microbatches {
  static constexpr int32_t kFilled = 6;  // times the rows that a product gets efficient at

  int32_t n_stages;  // or as many as somebody asked for
  bool plan_ahead;
  int32_t break_even_rows;

  int32_t operator()(int32_t n_prefill_tokens) const {
    const bool filled = n_prefill_tokens >= kFilled * break_even_rows;
    return n_stages + (plan_ahead && n_stages > 1 && filled ? 1 : 0);
  }
};

// Microbatches in flight at once: those that compute, one on each stage as a rule, and one planned.
struct InFlightLimit {
  bool plan_ahead;

  int32_t operator()(int32_t n_microbatches) const { return plan_ahead ? n_microbatches + 1 : 1; }
};

// Decodes of one step, so that a turn of the pipeline spreads all of them evenly. With one
// microbatch in flight a turn is one step.
struct DecodeShare {
  bool plan_ahead;
  int32_t max_batched_tokens;

  int32_t operator()(int32_t n_decoding, int32_t n_microbatches) const {
    const int32_t n_steps = plan_ahead ? n_microbatches : 1;
    return std::min((n_decoding + n_steps - 1) / n_steps, max_batched_tokens);
  }
};

// Tokens of the prompts that are to be prefilled: of those under way all, so that a prompt's chunks
// do not shrink while it is prefilled; of the queue only as much as there are slots for, or slots
// that come free one by one would each be filled in one large step. By mean length.
struct PrefillDemand {
  uint64_t operator()(uint64_t n_tokens_of_running, uint64_t n_tokens_of_queue, uint64_t n_queued,
                      uint64_t n_free_slots) const {
    if (n_queued <= n_free_slots) return n_tokens_of_running + n_tokens_of_queue;
    return n_tokens_of_running + n_tokens_of_queue * n_free_slots / n_queued;
  }
};

// Prefill tokens of one step. In chunks of c tokens, W tokens take W/c + S - 1 steps on S stages,
// each of a time like c + r^2/2c, where r is the number of rows that take as long to multiply as
// their weights to read. Large chunks keep stages waiting for the first and the last one, small
// ones read weights for few rows; least time is near c^3 = W r^2 / (S - 1). W is not what is left:
// of steps that go through S stages one after another all wait for the longest, so that shorter
// ones behind it gain nothing.
//
// Fewer when KV gets short, as in token throttling (Guo et al. 2025, gLLM), and with the decodes of
// the step a number of rows that GPUs' ways to products are chosen for: 2,048 rows took a stage 5%
// less time a row than 1,792 or 2,304.
struct PrefillBudget {
  static constexpr int32_t kMinTokens = 64;
  static constexpr double kFreeKvFloor =
      0.05;  // at this fraction of free KV only the minimum is left

  int32_t n_microbatches;
  bool plan_ahead;
  int32_t max_batched_tokens;
  int32_t break_even_rows;

  // Whether it matters how many tokens there are to prefill; Microbatches asks only if it does
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
  // The nearest, or no more than n_rows.
  static int32_t TunedRows(double n_rows, bool nearest) {
    int32_t rows = kMinTokens;
    while (RowSizeAfter(rows) <= n_rows) rows = RowSizeAfter(rows);
    const int32_t next = RowSizeAfter(rows);
    return nearest && next - n_rows <= n_rows - rows ? next : rows;
  }
};

// Blocks of a group left free on admission: one for every decode that runs, or the newcomer would
// be preempted, its prefill lost, as soon as the others grow.
struct AdmissionHeadroom {
  uint32_t operator()(uint32_t n_decoding) const { return n_decoding; }
};

}  // namespace stagecoach::router
