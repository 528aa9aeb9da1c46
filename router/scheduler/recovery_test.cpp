// What happens to sequences when the pipeline is lost and another epoch begins.
#include "absl/strings/match.h"
#include "catch2/generators/catch_generators.hpp"
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

TEST_CASE("After a loss, every sequence goes on with the tokens that it gets alone") {
  for (int n_stages : {1, 2, 4}) {
    CorePipeline pipeline(SmallConfig(n_stages, 200));
    for (SequenceId id = 1; id <= 8; ++id) pipeline.Submit(MakeRequest(id, 40, 60));
    pipeline.Fill();
    pipeline.Turn(30);
    pipeline.Interrupt();
    pipeline.Resume();
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("Between a loss and the next epoch nothing is planned, and new sequences wait") {
  CorePipeline pipeline(SmallConfig(2, 200));
  auto before = pipeline.Submit(MakeRequest(1, 40, 20));
  pipeline.Fill();
  pipeline.Turn(3);
  pipeline.Interrupt();
  auto meanwhile = pipeline.Submit(MakeRequest(2, 40, 20));
  REQUIRE(!pipeline.PlanOne());
  REQUIRE(!before->record().ended());
  REQUIRE(!meanwhile->record().ended());
  pipeline.Resume();
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Blocks of the epoch before are never adopted") {
  CorePipeline pipeline(SmallConfig(1, 200));
  auto first = MakeRequest(1, 64, 4);
  auto second = MakeRequest(2, 64, 4);
  BeginLike(*first, 64, *second);
  pipeline.Submit(std::move(first));
  pipeline.RunToEnd();
  pipeline.Interrupt();
  pipeline.Resume();
  auto sink = pipeline.Submit(std::move(second));
  pipeline.RunToEnd();  // the stage would report a block that it never filled
  REQUIRE(sink->record().times.n_cached_tokens == 0);
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Results of an earlier epoch are dropped") {
  CorePipeline pipeline(SmallConfig(1, 200));
  pipeline.Submit(MakeRequest(1, 40, 20));
  pipeline.Fill();
  v1::StepResult late;
  late.set_epoch(pipeline.core.state().epoch());
  late.set_step(1);
  pipeline.Interrupt();
  pipeline.core.Result(late);
  pipeline.Resume();
  pipeline.core.Result(late);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("A drain that begins between two epochs finishes what runs") {
  CorePipeline pipeline(SmallConfig(1, 200));
  pipeline.Submit(MakeRequest(1, 40, 20));
  pipeline.Fill();
  pipeline.Turn(2);
  pipeline.Interrupt();
  pipeline.core.Drain(absl::UnavailableError("the server is shutting down"));
  pipeline.Resume();
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("With a kept KV cache, every sequence goes on and computes nothing again") {
  const int n_executed = GENERATE(0, 1, 2, 9);
  for (int n_stages : {1, 2, 4}) {
    CorePipeline pipeline(SmallConfig(n_stages, 200));
    for (SequenceId id = 1; id <= 8; ++id) pipeline.Submit(MakeRequest(id, 40, 60));
    pipeline.Fill();
    pipeline.Turn(30);
    const size_t n_plans = pipeline.plans.size();
    pipeline.Interrupt(n_executed);
    CHECK(pipeline.core.state().running().size() == 8);
    pipeline.Resume(/*kv_kept=*/true);
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
    for (size_t i = n_plans; i < pipeline.plans.size(); ++i) {
      for (const auto& slot : pipeline.plans[i].slots()) CHECK(slot.n_tokens() == 1);
    }
  }
}

TEST_CASE("With a kept KV cache, a prompt goes on after its last computed chunk") {
  SchedulerConfig config = SmallConfig(2, 200);
  config.max_prefill_chunk = 24;
  CorePipeline pipeline(config);
  auto request = MakeRequest(1, 200, 5);
  request->sampling.set_n_prompt_logprobs(0);
  auto sink = pipeline.Submit(std::move(request));
  pipeline.Fill();
  pipeline.Turn(2);
  const size_t n_plans = pipeline.plans.size();
  pipeline.Interrupt(1);
  pipeline.Resume(/*kv_kept=*/true);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(sink->record().prompt_logprobs.size() == 199);
  const v1::StepPlan& next = pipeline.plans[n_plans];
  REQUIRE(next.registrations_size() == 1);
  CHECK(next.slots(0).start() ==
        pipeline.plans[1].slots(0).start() + pipeline.plans[1].slots(0).n_tokens());
}

TEST_CASE("A prefix that only steps in flight fill is not adopted after a loss") {
  CorePipeline pipeline(SmallConfig(2, 200));
  auto first = MakeRequest(1, 64, 4);
  auto second = MakeRequest(2, 64, 4);
  BeginLike(*first, 64, *second);
  pipeline.Submit(std::move(first));
  pipeline.Submit(std::move(second));
  pipeline.Fill();  // the second has adopted what the first is about to fill
  pipeline.Interrupt(/*n_executed=*/0);
  pipeline.Resume(/*kv_kept=*/true);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Prefixes from before a loss are adopted if the KV cache is kept") {
  CorePipeline pipeline(SmallConfig(1, 200));
  auto first = MakeRequest(1, 64, 4);
  auto second = MakeRequest(2, 64, 4);
  BeginLike(*first, 64, *second);
  pipeline.Submit(std::move(first));
  pipeline.RunToEnd();
  pipeline.Interrupt();
  pipeline.Resume(/*kv_kept=*/true);
  auto sink = pipeline.Submit(std::move(second));
  pipeline.RunToEnd();
  CHECK(sink->record().times.n_cached_tokens == 48);
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Decodes behind a window lose nothing that they need after a loss") {
  SchedulerConfig config = SmallConfig(2, 200);
  config.kv_groups.push_back({.window = 20, .n_blocks = 100});
  for (int n_turns = 30; n_turns < 70; ++n_turns) {
    CorePipeline pipeline(config);
    for (SequenceId id = 1; id <= 4; ++id) {
      pipeline.Submit(MakeRequest(id, 30 + static_cast<int>(id), 60));
    }
    pipeline.Fill();
    pipeline.Turn(n_turns);
    pipeline.Interrupt(9);
    CHECK(pipeline.core.state().waiting().empty());
    pipeline.Resume(/*kv_kept=*/true);
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("A second loss before a sequence is registered again takes nothing from it") {
  CorePipeline pipeline(SmallConfig(2, 200));
  for (SequenceId id = 1; id <= 8; ++id) pipeline.Submit(MakeRequest(id, 40, 60));
  pipeline.Fill();
  pipeline.Turn(20);
  pipeline.Interrupt(1);
  pipeline.Resume(/*kv_kept=*/true);
  pipeline.core.Cancel(1);  // no stage knows its slot
  pipeline.PlanOne();
  pipeline.Interrupt(1);
  pipeline.Resume(GENERATE(true, false));
  pipeline.RunToEnd();
}

// A pipeline that is lost whenever `poison` has a row in a step.
class PoisonedPipeline : public CorePipeline {
 public:
  PoisonedPipeline(const SchedulerConfig& config, SequenceId poison)
      : CorePipeline(config), poison_(poison) {}

  bool IsDeadly() const {
    for (const InFlightStep& step : core.state().in_flight()) {
      for (const auto& row : step.rows) {
        if (row.sequence->id() == poison_) return true;
      }
    }
    return false;
  }
  // Returns the number of losses.
  int RunWithLosses() {
    int n_losses = 0;
    Fill();
    while (!core.empty()) {
      if (IsDeadly()) {
        ++n_losses;
        REQUIRE(n_losses < 20);
        Interrupt();
        Resume(/*kv_kept=*/n_losses % 2 == 0);
        Fill();
      } else {
        Turn(1);
      }
    }
    return n_losses;
  }

 private:
  const SequenceId poison_;
};

TEST_CASE("A sequence that loses the pipeline again and again ends, and the others live") {
  for (int n_stages : {1, 2, 4}) {
    PoisonedPipeline pipeline(SmallConfig(n_stages, 400), /*poison=*/5);
    std::vector<std::shared_ptr<RecordingSink>> others;
    for (SequenceId id = 1; id <= 4; ++id)
      others.push_back(pipeline.Submit(MakeRequest(id, 30, 40)));
    pipeline.Fill();
    pipeline.Turn(10);
    auto poison = std::make_shared<RecordingSink>();
    auto request = MakeRequest(5, 30, 40);
    request->sink = poison;
    pipeline.core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
    for (SequenceId id = 6; id <= 9; ++id)
      others.push_back(pipeline.Submit(MakeRequest(id, 30, 40)));
    const int n_losses = pipeline.RunWithLosses();
    CHECK(n_losses == 3);
    CHECK(absl::IsInternal(poison->record().error));
    CHECK(absl::StrContains(poison->record().error.message(), "only one in the pipeline"));
    CHECK(poison->record().tokens.empty());
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("Losses with progress between them make no suspects") {
  CorePipeline pipeline(SmallConfig(2, 400));
  for (SequenceId id = 1; id <= 8; ++id) pipeline.Submit(MakeRequest(id, 30, 100));
  pipeline.Fill();
  for (int i = 0; i < 8; ++i) {
    pipeline.Turn(20);
    pipeline.Interrupt();
    CHECK(pipeline.core.state().on_trial() == nullptr);
    pipeline.Resume();
    pipeline.Fill();
  }
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Suspects run alone until they are acquitted, then all go on together") {
  CorePipeline pipeline(SmallConfig(2, 400));
  for (SequenceId id = 1; id <= 3; ++id) pipeline.Submit(MakeRequest(id, 30, 40));
  pipeline.Fill();
  for (int i = 0; i < 2; ++i) {
    pipeline.Interrupt();
    pipeline.Resume();
    pipeline.Fill();
  }
  REQUIRE(pipeline.core.state().on_trial() != nullptr);
  while (pipeline.core.state().on_trial() != nullptr) {
    REQUIRE(pipeline.core.state().in_flight().size() == 1);
    REQUIRE(pipeline.core.state().in_flight().front().rows.size() == 1);
    pipeline.Turn(1);
  }
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

}  // namespace
}  // namespace stagecoach::router
