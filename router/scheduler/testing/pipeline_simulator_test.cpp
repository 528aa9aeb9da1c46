#include "router/scheduler/testing/pipeline_simulator.h"

#include "catch2/catch_approx.hpp"
#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

SchedulerConfig Config(int32_t n_stages) {
  SchedulerConfig config;
  config.n_microbatches = n_stages;
  config.max_sequences = 4;
  config.max_batched_tokens = 512;
  config.max_prefill_chunk = 512;
  config.kv_groups = {{.window = 0, .n_blocks = 1000}};
  return config;
}

SimulatedRun Run(int32_t n_stages, std::vector<SimulatedRequest> requests) {
  auto run = Simulate(Config(n_stages), EvenStages(ModelShape(), DeviceSpeed(), n_stages),
                      ModelShape(), std::move(requests));
  REQUIRE(run.ok());
  return *std::move(run);
}

TEST_CASE("A single sequence takes its steps plus the way to the router and back") {
  const SimulatedRun run = Run(1, {{.arrival_s = 2, .n_prompt = 100, .n_output = 3}});
  REQUIRE(run.n_prompt_tokens == 100);
  REQUIRE(run.n_output_tokens == 3);
  REQUIRE(run.steps.size() == 3);
  const double router_s = 2 * DeviceSpeed().router_s;
  REQUIRE(run.first_token_s[0] == Catch::Approx(run.steps[0].stage_s + router_s));
  // Decodes are planned ahead, so they do not wait for a round trip to the router.
  REQUIRE(run.between_tokens_s[1] == Catch::Approx(run.steps[2].stage_s));
  REQUIRE(run.seconds == Catch::Approx(2 + router_s + run.steps[0].stage_s + run.steps[1].stage_s +
                                       run.steps[2].stage_s));
}

TEST_CASE("A decode waits on stage 0 for the token of the previous step") {
  const SimulatedRun run = Run(2, {{.n_prompt = 20, .n_output = 4}});
  const DeviceSpeed speed;
  for (size_t i = 2; i < run.steps.size(); ++i) {
    const StepWork& before = run.steps[i - 1].work;
    double turn_s = speed.hop_s;
    for (int32_t s = 0; s < 2; ++s) {
      turn_s += StageCost(ModelShape(), speed, 16, s == 1).Seconds(before);
    }
    turn_s += StageCost(ModelShape(), speed, 16, false).HopSeconds(before);
    REQUIRE(run.steps[i].first_stage_s - run.steps[i - 1].first_stage_s == Catch::Approx(turn_s));
  }
}

TEST_CASE("In a closed loop, a request arrives when another one ends") {
  std::vector<SimulatedRequest> requests(6, {.n_prompt = 30, .n_output = 5});
  for (size_t i = 2; i < requests.size(); ++i) requests[i].closed_loop = true;
  const SimulatedRun run = Run(2, requests);
  REQUIRE(run.n_output_tokens == 6 * 5);
  for (const SimulatedStep& step : run.steps) REQUIRE(step.work.n_sampled <= 2);
  for (double share : run.busy_share) REQUIRE((share > 0 && share <= 1));
}

}  // namespace
}  // namespace stagecoach::router
