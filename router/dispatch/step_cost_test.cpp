#include "router/dispatch/step_cost.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::router {
namespace {

using std::chrono::milliseconds;

TEST_CASE("a plan's size counts rows, attended pairs and logits") {
  PlanSizer sizer;
  v1::StepPlan plan;
  plan.set_step(1);
  auto* const registration = plan.add_registrations();
  registration->set_slot(3);
  registration->mutable_sampling()->set_n_prompt_logprobs(5);
  plan.add_registrations()->mutable_sampling()->set_n_prompt_logprobs(-1);
  auto* const told = plan.add_slots();
  told->set_slot(3);
  told->set_n_tokens(4);
  auto* const decode = plan.add_slots();
  decode->set_start(99);
  decode->set_n_tokens(1);
  decode->set_sample(true);
  const StepSize size = sizer(plan);
  CHECK(size.n_rows == 5);
  CHECK(size.n_pairs == 4 * 5 / 2 + 100);
  CHECK(size.n_logits == 4 + 1);

  // The registration's setting applies to all later steps of the slot.
  plan.clear_registrations();
  CHECK(sizer(plan).n_logits == 5);
}

TEST_CASE("the cost of an unknown step follows from known ones, at most in proportion") {
  StepCost cost({.n_rows = 512, .n_pairs = 512, .n_logits = 64}, milliseconds(100));
  // Smaller in every quantity: not more than the known step.
  CHECK(cost.Expect({.n_rows = 10, .n_pairs = 100, .n_logits = 1}) == milliseconds(100));
  // A long context: proportional to the pairs.
  CHECK(cost.Expect({.n_rows = 512, .n_pairs = 51'200, .n_logits = 1}) == milliseconds(10'000));
  cost.Learn({.n_rows = 512, .n_pairs = 50'000, .n_logits = 1}, milliseconds(300));
  CHECK(cost.Expect({.n_rows = 512, .n_pairs = 51'200, .n_logits = 1}) < milliseconds(310));
  CHECK(cost.Expect({.n_rows = 10, .n_pairs = 100, .n_logits = 1}) == milliseconds(100));
}

TEST_CASE("the longest recent time counts, and is forgotten over time") {
  StepCost cost({.n_rows = 512, .n_pairs = 512, .n_logits = 64}, milliseconds(100));
  const StepSize decode{.n_rows = 1, .n_pairs = 100, .n_logits = 1};
  cost.Learn(decode, milliseconds(900));
  cost.Learn(decode, milliseconds(10));
  CHECK(cost.Expect(decode) > milliseconds(800));
  for (int i = 0; i < 100; ++i) cost.Learn(decode, milliseconds(10));
  CHECK(cost.Expect(decode) < milliseconds(20));
}

}  // namespace
}  // namespace stagecoach::router
