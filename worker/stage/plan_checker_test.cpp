#include "worker/stage/plan_checker.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

#include "stagecoach/v1/step.pb.h"

namespace stagecoach::worker {
namespace {

constexpr uint64_t kEpoch = 4;

StageLimits Limits() {
  v1::LoadConfig config;
  config.set_max_batched_tokens(32);
  config.set_max_sequences(2);
  config.set_max_model_len(64);
  config.set_max_logprobs(5);
  return {.config = config, .vocab_size = 100, .n_kv_groups = 1};
}

class Fixture {
 public:
  absl::Status Check(v1::StepPlan plan) {
    plan.set_epoch(plan.epoch() == 0 ? kEpoch : plan.epoch());
    plan.set_step(plan.step() == 0 ? step_ + 1 : plan.step());
    ++step_;
    std::string bytes;
    if (absl::Status status = EncodeStepMeta(plan, 1, &bytes); !status.ok()) return status;
    const auto view = DecodeStepMeta(bytes);
    if (!view.ok()) return view.status();
    const auto sampling = ParseSampling(*view);
    return sampling.ok() ? checker_.Check(*view, *sampling) : sampling.status();
  }

 private:
  PlanChecker checker_{Limits(), kEpoch, {8}};
  uint64_t step_ = 0;
};

TEST_CASE("copies of KV blocks are of blocks that exist") {
  v1::StepPlan plan;
  v1::KvSave& save = *plan.add_saves();
  save.set_key(std::string(16, 'k'));
  for (int i = 0; i < 16; ++i) save.add_tokens(i);
  save.add_blocks(7);
  v1::KvRestore& restore = *plan.add_restores();
  restore.add_blocks(kNoKvBlock);
  CHECK(Fixture().Check(plan).ok());
  save.set_blocks(0, 8);
  CHECK(absl::IsInvalidArgument(Fixture().Check(plan)));
  save.set_blocks(0, kNoKvBlock);
  CHECK(absl::IsInvalidArgument(Fixture().Check(plan)));
  save.set_blocks(0, 0);
  restore.set_blocks(0, 8);
  CHECK(absl::IsInvalidArgument(Fixture().Check(plan)));
}

v1::SlotRegistration* Register(v1::StepPlan& plan, uint32_t slot, int n_tokens) {
  auto* registration = plan.add_registrations();
  registration->set_slot(slot);
  for (int i = 0; i < n_tokens; ++i) registration->add_tokens(i);
  registration->set_n_prompt(n_tokens);
  return registration;
}

v1::SlotDelta* Compute(v1::StepPlan& plan, uint32_t slot, uint32_t start, uint32_t n_tokens,
                       bool sample, std::vector<uint32_t> blocks = {}) {
  auto* delta = plan.add_slots();
  delta->set_slot(slot);
  delta->set_start(start);
  delta->set_n_tokens(n_tokens);
  delta->set_sample(sample);
  auto* ids = delta->add_new_blocks();
  for (uint32_t block : blocks) ids->add_ids(block);
  return delta;
}

v1::StepPlan Registered(int n_tokens) {
  v1::StepPlan plan;
  Register(plan, 0, n_tokens);
  return plan;
}

TEST_CASE("chunks, decodes planned ahead, release and slot reuse are accepted") {
  Fixture f;
  v1::StepPlan plan = Registered(20);
  Compute(plan, 0, 0, 16, false, {3});
  CHECK(f.Check(plan).ok());
  plan.Clear();
  Compute(plan, 0, 16, 4, true, {5});
  CHECK(f.Check(plan).ok());
  for (uint32_t p = 20; p < 25; ++p) {
    plan.Clear();
    Compute(plan, 0, p, 1, true);
    CHECK(f.Check(plan).ok());
  }
  plan = Registered(3);
  plan.add_release(0);
  Compute(plan, 0, 0, 3, true, {5});
  CHECK(f.Check(plan).ok());
  // Again without a release: a preempted sequence enters anew.
  plan = Registered(4);
  Compute(plan, 0, 0, 4, true, {1});
  CHECK(f.Check(plan).ok());
}

TEST_CASE("a sequence may start after tokens in blocks that it gets") {
  Fixture f;
  v1::StepPlan plan = Registered(40);
  Compute(plan, 0, 32, 8, true, {5, 6, 7});
  CHECK(f.Check(plan).ok());
  Fixture within_a_block;
  plan = Registered(40);
  Compute(plan, 0, 30, 10, true, {5, 6, 7});
  CHECK(within_a_block.Check(plan).ok());
  Fixture too_few;
  plan = Registered(40);
  Compute(plan, 0, 32, 8, true, {5});
  CHECK(absl::IsInvalidArgument(too_few.Check(plan)));
  Fixture beyond;  // their sum is 40 in 32 bits
  plan = Registered(40);
  Compute(plan, 0, 0xfffffff0, 56, true, {5, 6, 7});
  CHECK_FALSE(beyond.Check(plan).ok());
  Fixture later;
  plan = Registered(40);
  Compute(plan, 0, 0, 16, false, {5});
  CHECK(later.Check(plan).ok());
  plan.Clear();
  Compute(plan, 0, 32, 8, true, {6, 7});
  CHECK(absl::IsInvalidArgument(later.Check(plan)));
}

TEST_CASE("recurrent states are those that the stage has, and every late start has one") {
  StageLimits limits = Limits();
  limits.n_states = 4;
  const auto check = [&](const v1::StepPlan& plan) {
    v1::StepPlan numbered = plan;
    numbered.set_epoch(kEpoch);
    numbered.set_step(1);
    std::string bytes;
    REQUIRE(EncodeStepMeta(numbered, 1, &bytes).ok());
    const auto view = DecodeStepMeta(bytes);
    REQUIRE(view.ok());
    const auto sampling = ParseSampling(*view);
    REQUIRE(sampling.ok());
    return PlanChecker(limits, kEpoch, {8}).Check(*view, *sampling);
  };
  v1::StepPlan plan;
  v1::SlotRegistration* const registration = Register(plan, 0, 20);
  v1::SlotDelta* const delta = Compute(plan, 0, 0, 20, true, {3, 5});
  CHECK(check(plan).ok());
  delta->set_save_state(4);
  CHECK(check(plan).ok());
  delta->set_save_state(5);
  CHECK(absl::IsInvalidArgument(check(plan)));
  delta->set_save_state(0);
  registration->set_from_state(3);  // and begins at 0
  CHECK(absl::IsInvalidArgument(check(plan)));
  delta->set_start(16);
  delta->set_n_tokens(4);
  CHECK(check(plan).ok());
  delta->set_save_state(4);  // no block ends in these rows
  CHECK(absl::IsInvalidArgument(check(plan)));
  delta->set_save_state(0);
  registration->set_from_state(5);
  CHECK(absl::IsInvalidArgument(check(plan)));
  registration->set_from_state(0);
  CHECK(absl::IsInvalidArgument(check(plan)));
  limits.n_states = 0;  // a model without recurrent layers
  CHECK(check(plan).ok());
  registration->set_from_state(1);
  CHECK(absl::IsInvalidArgument(check(plan)));
}

TEST_CASE("another epoch and a skipped step are failed preconditions") {
  v1::StepPlan plan;
  plan.set_epoch(kEpoch + 1);
  CHECK(absl::IsFailedPrecondition(Fixture().Check(plan)));
  plan.set_epoch(kEpoch);
  plan.set_step(2);
  CHECK(absl::IsFailedPrecondition(Fixture().Check(plan)));
  Fixture f;
  plan.set_step(1);
  CHECK(f.Check(plan).ok());
  CHECK(absl::IsFailedPrecondition(f.Check(plan)));
}

TEST_CASE("slots without a registration are failed preconditions") {
  v1::StepPlan plan;
  Compute(plan, 0, 0, 1, false, {0});
  CHECK(absl::IsFailedPrecondition(Fixture().Check(plan)));
  plan.Clear();
  plan.add_release(0);
  CHECK(absl::IsFailedPrecondition(Fixture().Check(plan)));
}

TEST_CASE("values out of range are invalid arguments") {
  v1::StepPlan plan = Registered(20);
  const auto invalid = [&plan] {
    const absl::Status status = Fixture().Check(plan);
    INFO(status.ToString());
    return absl::IsInvalidArgument(status) && std::string(status.message()).find("step 1: ") == 0;
  };
  SECTION("slot of a registration") { plan.mutable_registrations(0)->set_slot(2); }
  SECTION("slot of a delta") { Compute(plan, 2, 0, 1, false, {0}); }
  SECTION("slot of a release") { plan.add_release(99); }
  SECTION("token id") { plan.mutable_registrations(0)->set_tokens(3, 100); }
  SECTION("negative token id") { plan.mutable_registrations(0)->set_tokens(3, -1); }
  SECTION("no tokens") { plan.mutable_registrations(0)->clear_tokens(); }
  SECTION("no prompt") { plan.mutable_registrations(0)->set_n_prompt(0); }
  SECTION("prompt beyond the tokens") { plan.mutable_registrations(0)->set_n_prompt(21); }
  SECTION("too many tokens for a sequence") { plan = Registered(65); }
  SECTION("too many log-probabilities") {
    plan.mutable_registrations(0)->mutable_sampling()->set_n_logprobs(6);
  }
  SECTION("temperature") {
    plan.mutable_registrations(0)->mutable_sampling()->set_temperature(
        std::numeric_limits<float>::quiet_NaN());
  }
  SECTION("negative temperature") {
    plan.mutable_registrations(0)->mutable_sampling()->set_temperature(-1);
  }
  SECTION("bias without values") {
    plan.mutable_registrations(0)->mutable_sampling()->add_bias_ids(1);
  }
  SECTION("an unknown kind of grammar") {
    auto* grammar = plan.mutable_registrations(0)->mutable_sampling()->mutable_grammar();
    grammar->add_end_ids(0);
    grammar->set_kind(static_cast<v1::GrammarKind>(-1));
  }
  SECTION("a grammar without an end token") {
    plan.mutable_registrations(0)->mutable_sampling()->mutable_grammar();
  }
  SECTION("an end id") {
    plan.mutable_registrations(0)->mutable_sampling()->mutable_grammar()->add_end_ids(100);
  }
  SECTION("a large grammar") {
    auto* grammar = plan.mutable_registrations(0)->mutable_sampling()->mutable_grammar();
    grammar->add_end_ids(0);
    grammar->set_source(std::string((256 << 10) + 1, 'a'));
  }
  SECTION("start") { Compute(plan, 0, 20, 1, false, {0, 1}); }
  SECTION("block") { Compute(plan, 0, 0, 4, false, {8}); }
  SECTION("too few blocks") { Compute(plan, 0, 0, 17, false, {0}); }
  SECTION("too many blocks") { Compute(plan, 0, 0, 4, false, {0, 1, 2, 3, 4}); }
  SECTION("rows beyond the known tokens") { Compute(plan, 0, 0, 21, false, {0, 1}); }
  SECTION("a sample in the middle") { Compute(plan, 0, 0, 19, true, {0, 1}); }
  SECTION("a slot twice") {
    Compute(plan, 0, 0, 4, false, {0});
    Compute(plan, 0, 4, 4, false);
  }
  SECTION("too many rows") {
    plan = Registered(40);
    Compute(plan, 0, 0, 33, false, {0, 1, 2});
  }
  SECTION("a row count that overflows") { Compute(plan, 0, 0, 0x0fffffff, false, {0, 1}); }
  CHECK(invalid());
}

TEST_CASE("a stage that reads no sampling parameters checks the rest") {
  v1::StepPlan plan = Registered(20);
  plan.set_epoch(kEpoch);
  plan.set_step(1);
  plan.mutable_registrations(0)->mutable_sampling()->set_temperature(-1);
  const auto check = [&plan] {
    std::string bytes;
    REQUIRE(EncodeStepMeta(plan, 1, &bytes).ok());
    return PlanChecker(Limits(), kEpoch, {8}).Check(DecodeStepMeta(bytes).value(), {});
  };
  CHECK(check().ok());
  plan.mutable_registrations(0)->set_tokens(3, 100);
  CHECK(absl::IsInvalidArgument(check()));
}

TEST_CASE("a decode of a token that was never sampled is refused") {
  Fixture f;
  v1::StepPlan plan = Registered(4);
  Compute(plan, 0, 0, 4, false, {0});
  REQUIRE(f.Check(plan).ok());
  plan.Clear();
  Compute(plan, 0, 4, 1, true);
  CHECK(absl::IsInvalidArgument(f.Check(plan)));
}

TEST_CASE("a sequence cannot grow beyond max_model_len") {
  Fixture f;
  v1::StepPlan plan = Registered(64);
  Compute(plan, 0, 0, 32, false, {0, 1});
  REQUIRE(f.Check(plan).ok());
  plan.Clear();
  Compute(plan, 0, 32, 32, true, {2, 3});
  REQUIRE(f.Check(plan).ok());
  plan.Clear();
  Compute(plan, 0, 64, 1, true);
  CHECK(absl::IsInvalidArgument(f.Check(plan)));
}

}  // namespace
}  // namespace stagecoach::worker
