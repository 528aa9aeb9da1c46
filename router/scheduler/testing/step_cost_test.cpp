#include "router/scheduler/testing/step_cost.h"

#include "catch2/catch_approx.hpp"
#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

v1::StepPlan PlanOf(int n_sequences, uint32_t start, uint32_t n_tokens) {
  v1::StepPlan plan;
  for (int i = 0; i < n_sequences; ++i) {
    v1::SlotDelta& delta = *plan.add_slots();
    delta.set_start(start);
    delta.set_n_tokens(n_tokens);
    delta.set_sample(true);
  }
  return plan;
}

double OneStageMs(const v1::StepPlan& plan) {
  return StageCost(ModelShape(), DeviceSpeed(), 32, true).Seconds(WorkOf(plan)) * 1e3;
}

TEST_CASE("The cost model reproduces the steps that it was fitted to") {
  struct Measured {
    int n_sequences;
    uint32_t start, n_tokens;
    double ms;  // tests/bench/results/cuda_steps.jsonl
  };
  const Measured steps[] = {{1, 255, 1, 4.418},   {8, 255, 1, 4.61},     {64, 255, 1, 5.313},
                            {128, 399, 1, 6.764}, {256, 399, 1, 10.676}, {1, 0, 8192, 214.8},
                            {2, 0, 4096, 201.8},  {64, 0, 128, 183.8}};
  for (const Measured& step : steps) {
    const double ms = OneStageMs(PlanOf(step.n_sequences, step.start, step.n_tokens));
    CAPTURE(step.n_sequences, step.n_tokens);
    CHECK(ms == Catch::Approx(step.ms).epsilon(0.05));
  }
}

TEST_CASE("A chunk costs time for the keys before it, a decode for reading them") {
  const StepWork chunk = WorkOf(PlanOf(1, 1000, 10));
  REQUIRE(chunk.n_rows == 10);
  REQUIRE(chunk.n_prefill == 10);
  REQUIRE(chunk.n_sampled == 1);
  REQUIRE(chunk.chunk_pairs == 10 * 1000 + 55);
  REQUIRE(chunk.decode_keys == 0);
  const StepWork decodes = WorkOf(PlanOf(3, 1000, 1));
  REQUIRE(decodes.n_prefill == 0);
  REQUIRE(decodes.chunk_pairs == 0);
  REQUIRE(decodes.decode_keys == 3 * 1001);
}

TEST_CASE("Rows beyond one tile cost whole tiles") {
  REQUIRE(OneStageMs(PlanOf(1, 0, 300)) > OneStageMs(PlanOf(1, 0, 256)) * 1.2);
  REQUIRE(OneStageMs(PlanOf(1, 0, 300)) ==
          Catch::Approx(OneStageMs(PlanOf(1, 0, 384))).epsilon(0.01));
}

TEST_CASE("Stages divide the time of one stage, and only the last has the LM head") {
  const v1::StepPlan plan = PlanOf(16, 255, 1);
  const StepWork work = WorkOf(plan);
  for (int32_t n_stages : {2, 4, 8}) {
    double seconds = 0;
    for (int32_t s = 0; s < n_stages; ++s) {
      seconds +=
          StageCost(ModelShape(), DeviceSpeed(), 32 / n_stages, s + 1 == n_stages).Seconds(work);
    }
    REQUIRE(seconds * 1e3 == Catch::Approx(OneStageMs(plan)));
  }
  REQUIRE(StageCost(ModelShape(), DeviceSpeed(), 8, true).Seconds(work) >
          StageCost(ModelShape(), DeviceSpeed(), 8, false).Seconds(work));
}

}  // namespace
}  // namespace stagecoach::router
