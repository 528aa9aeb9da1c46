// What happens to sequences when the pipeline is lost and another epoch begins.
#include "absl/strings/match.h"
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
        Resume();
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
