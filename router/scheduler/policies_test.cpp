#include "router/scheduler/policies.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("Each step gets its part of the decodes, so that they spread over the turn") {
  const DecodeShare share{.plan_ahead = true, .max_batched_tokens = 10};
  REQUIRE(share(0, 4) == 0);
  REQUIRE(share(1, 4) == 1);
  REQUIRE(share(9, 4) == 3);
  REQUIRE(share(1000, 4) == 10);
  REQUIRE(DecodeShare{.plan_ahead = false, .max_batched_tokens = 99}(9, 4) == 9);
}

TEST_CASE("There is one microbatch per stage, and one more while prompts fill the steps") {
  const Microbatches microbatches{.n_stages = 2, .plan_ahead = true, .break_even_rows = 200};
  REQUIRE(microbatches(64) == 2);
  REQUIRE(microbatches(1199) == 2);
  REQUIRE(microbatches(1200) == 3);
  // If steps run one after another, there is no idle time to hide.
  REQUIRE(Microbatches{.n_stages = 1, .plan_ahead = true, .break_even_rows = 200}(8192) == 1);
  REQUIRE(Microbatches{.n_stages = 2, .plan_ahead = false, .break_even_rows = 200}(8192) == 2);
}

TEST_CASE("Prefill demand counts the queue only as far as slots are free") {
  const PrefillDemand demand;
  REQUIRE(demand(100, 6000, 6, 6) == 6100);
  REQUIRE(demand(100, 6000, 6, 2) == 2100);
  REQUIRE(demand(100, 6000, 6, 0) == 100);
  REQUIRE(demand(0, 0, 0, 0) == 0);
}

PrefillBudget Budget(int32_t n_microbatches) {
  return {.n_microbatches = n_microbatches,
          .plan_ahead = true,
          .max_batched_tokens = 8192,
          .break_even_rows = 200};
}

TEST_CASE("The prefill budget grows slowly with demand, in the row sizes that kernels have") {
  REQUIRE(Budget(4)(0, 1.0, 0) == 64);
  REQUIRE(Budget(4)(8192, 1.0, 0) == 512);
  REQUIRE(Budget(4)(4096, 1.0, 0) == 384);
  REQUIRE(Budget(4)(512, 1.0, 0) == 192);
  REQUIRE(Budget(4)(262'144, 1.0, 0) == 1536);
  // Fewer stages leave less idle time, and devices that are efficient with few rows need small
  // chunks.
  REQUIRE(Budget(2)(8192, 1.0, 0) == 768);
  PrefillBudget cpu = Budget(4);
  cpu.break_even_rows = 32;
  REQUIRE(cpu(8192, 1.0, 0) == 128);
  REQUIRE(cpu(1000, 1.0, 0) == 64);
}

TEST_CASE("The prefill budget leaves room for the step's decodes") {
  REQUIRE(Budget(4)(8192, 1.0, 60) == 512 - 60);
  REQUIRE(Budget(4)(0, 1.0, 50) == 128 - 50);
  REQUIRE(Budget(4)(0, 1.0, 70) == 64);  // never less than the minimum
}

TEST_CASE("The prefill budget falls with free KV and stays within a step") {
  REQUIRE(Budget(2)(10'000'000, 1.0, 0) == 8192);
  REQUIRE(Budget(2)(524'288, 1.0, 100) == 3072 - 100);
  REQUIRE(Budget(2)(300'000, 1.0, 100) == 2048 - 100);
  REQUIRE(Budget(2)(100'000'000, 1.0, 0) == 8192);
  REQUIRE(Budget(2)(100'000'000, 0.525, 0) == 4096);
  REQUIRE(Budget(2)(100'000'000, 0.01, 0) == 64);
  REQUIRE(Budget(2)(100'000'000, 0.05, 330) == 64);  // not rounded up to a whole tile
  PrefillBudget small = Budget(2);
  small.max_batched_tokens = 8;
  REQUIRE(small(9, 0.0, 0) == 8);
  // With one stage, there is no pipeline to fill.
  REQUIRE(Budget(1)(9, 0.0, 0) == 8192);
}

}  // namespace
}  // namespace stagecoach::router
