// How long a stage may take for a step, from how long it took for others.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

// What a step's time grows with.
struct StepSize {
  uint64_t n_rows = 0;    // tokens
  uint64_t n_pairs = 0;   // of a row and a position that it attends to
  uint64_t n_logits = 0;  // rows whose logits are computed, and sampled or told
};

// Sizes of plans, in their order. One thread at a time.
class PlanSizer {
 public:
  StepSize operator()(const v1::StepPlan& plan);

 private:
  std::vector<bool> tells_prompt_;  // by slot: logits of the prompt's rows as well
};

// What one stage's steps take. Not thread-safe.
class StepCost {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // `took`: for a step of `size`, tried at the load.
  StepCost(const StepSize& size, Duration took);

  void Learn(const StepSize& size, Duration took);
  // The longest that steps of about this size have taken of late. Of a size that has not been: what
  // follows from others, as a step's time is at most proportional to what it grows with.
  Duration Expect(const StepSize& size) const;

 private:
  struct Sample {
    StepSize size;
    Duration took{};
  };
  using Key = std::tuple<int, int, int>;  // powers of two
  static Key KeyOf(const StepSize& size);

  const Sample tried_;
  std::map<Key, Sample> learned_;
};

}  // namespace stagecoach::router
