// Estimates the step time of a stage from the times of earlier steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

// The quantities that a step's time grows with.
struct StepSize {
  uint64_t n_rows = 0;    // tokens
  uint64_t n_pairs = 0;   // pairs of a row and a position that it attends to
  uint64_t n_logits = 0;  // rows whose logits are computed, for sampling or for prompt logprobs
};

// Computes the sizes of plans; call it in step order. One thread at a time.
class PlanSizer {
 public:
  StepSize operator()(const v1::StepPlan& plan);

 private:
  std::vector<bool> tells_prompt_;  // per slot: prompt rows need logits too
};

// The cost of steps on one stage. Not thread-safe.
class StepCost {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // `took`: the time of a step of `size` that was measured during the load.
  StepCost(const StepSize& size, Duration took);

  void Learn(const StepSize& size, Duration took);
  // The longest recent time of steps of about this size. For a size without samples: an upper bound
  // from other sizes, since a step's time grows at most in proportion to these quantities.
  Duration Expect(const StepSize& size) const;

 private:
  struct Sample {
    StepSize size;
    Duration took{};
  };
  using Key = std::tuple<int, int, int>;  // bit widths: buckets between powers of two
  static Key KeyOf(const StepSize& size);

  const Sample tried_;
  std::map<Key, Sample> learned_;
};

}  // namespace stagecoach::router
