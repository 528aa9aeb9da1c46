#include "router/scheduler/policies.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("A step's share of the decodes spreads them over the turn") {
  const DecodeShare share{.n_microbatches = 4, .plan_ahead = true, .max_batched_tokens = 10};
  REQUIRE(share(0) == 0);
  REQUIRE(share(1) == 1);
  REQUIRE(share(9) == 3);
  REQUIRE(share(1000) == 10);
  REQUIRE(DecodeShare{.n_microbatches = 4, .plan_ahead = false, .max_batched_tokens = 99}(9) == 9);
}

TEST_CASE("The prefill budget follows waiting tokens and free KV") {
  const PrefillBudget budget{.n_microbatches = 2, .plan_ahead = true, .max_batched_tokens = 512};
  REQUIRE(budget(0, 1.0) == 64);
  REQUIRE(budget(1600, 1.0) == 200);
  REQUIRE(budget(100'000, 1.0) == 512);
  REQUIRE(budget(100'000, 0.525) == 256);
  REQUIRE(budget(100'000, 0.01) == 64);
  REQUIRE(PrefillBudget{.n_microbatches = 2, .plan_ahead = true, .max_batched_tokens = 8}(9, 0.0) ==
          8);
  // No pipeline to balance.
  REQUIRE(PrefillBudget{.n_microbatches = 1, .plan_ahead = true, .max_batched_tokens = 512}(
              9, 0.0) == 512);
}

}  // namespace
}  // namespace stagecoach::router
