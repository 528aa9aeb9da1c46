// The scheduler's policies: const function objects without state, so that each can be read and
// tested alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stagecoach::router {

// Microbatches in flight at once: those that compute, one on each stage as a rule, and one planned.
struct InFlightLimit {
  int32_t n_microbatches;
  bool plan_ahead;

  int32_t operator()() const { return plan_ahead ? n_microbatches + 1 : 1; }
};

// Decodes of one step, so that a turn of the pipeline spreads all of them evenly. With one
// microbatch in flight a turn is one step.
struct DecodeShare {
  int32_t n_microbatches;
  bool plan_ahead;
  int32_t max_batched_tokens;

  int32_t operator()(int32_t n_decoding) const {
    const int32_t n_steps = plan_ahead ? n_microbatches : 1;
    return std::min((n_decoding + n_steps - 1) / n_steps, max_batched_tokens);
  }
};

// Prefill tokens of one step. Token throttling (Guo et al. 2025, gLLM): the tokens that wait are
// spread over the next microbatches, fewer when KV gets short, so that microbatches cost alike and
// no bubble follows a large one.
struct PrefillBudget {
  static constexpr uint64_t kSpreadSteps = 8;
  static constexpr int32_t kMinTokens = 64;
  static constexpr double kFreeKvFloor =
      0.05;  // at this fraction of free KV only the minimum is left

  int32_t n_microbatches;
  bool plan_ahead;
  int32_t max_batched_tokens;

  int32_t operator()(uint64_t n_waiting_tokens, double free_kv_fraction) const {
    if (n_microbatches == 1 || !plan_ahead) return max_batched_tokens;
    const uint64_t spread = (n_waiting_tokens + kSpreadSteps - 1) / kSpreadSteps;
    const double kv_scale = std::max(0.0, (free_kv_fraction - kFreeKvFloor) / (1 - kFreeKvFloor));
    const auto most = static_cast<int32_t>(max_batched_tokens * kv_scale);
    const int32_t least = std::min(kMinTokens, max_batched_tokens);
    return std::max(least, static_cast<int32_t>(std::min<uint64_t>(spread, most)));
  }
};

// Blocks of a group left free on admission: one for every decode that runs, or the newcomer would
// be preempted, its prefill lost, as soon as the others grow.
struct AdmissionHeadroom {
  uint32_t operator()(uint32_t n_decoding) const { return n_decoding; }
};

}  // namespace stagecoach::router
