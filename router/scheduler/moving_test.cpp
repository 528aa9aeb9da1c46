// Sequences that leave a scheduler whose pipeline is lost, and go on in another one.
#include <algorithm>
#include <map>

#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

const absl::Status kLoss = absl::UnavailableError("stage 1 is lost");

// A scheduler whose pipeline works, and takes what another one cannot keep.
SchedulerHooks MovesTo(CorePipeline* other, std::vector<SequenceId>* moved) {
  return {.on_state = nullptr,
          .may_move = [] { return true; },
          .move =
              [=](std::vector<std::unique_ptr<SequenceRequest>> requests) {
                for (auto& request : requests) {
                  moved->push_back(request->id);
                  other->core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
                }
              }};
}

TEST_CASE("A sequence goes on after its past") {
  CorePipeline pipeline(SmallConfig(2, 200));
  auto request = MakeRequest(1, 40, 30);
  const std::vector<int32_t> alone = TokensAlone(*request, 256);
  request->past = SequencePast{.tokens = {alone.begin(), alone.begin() + 17}};
  auto sink = pipeline.Submit(std::move(request));
  pipeline.RunToEnd();
  CHECK(sink->record().tokens == std::vector<int32_t>(alone.begin() + 17, alone.end()));
  CHECK(sink->record().finish == Finish::kLength);
  REQUIRE(pipeline.plans.front().registrations_size() == 1);
  CHECK(pipeline.plans.front().registrations(0).n_prompt() == 40);
  CHECK(pipeline.plans.front().registrations(0).tokens_size() == 57);
}

TEST_CASE("What was queued elsewhere is refused neither by a full queue nor by a drain") {
  SchedulerConfig config = SmallConfig(1, 200);
  config.max_waiting = 1;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 40, 30));
  auto request = MakeRequest(2, 40, 30);
  request->past.emplace();
  pipeline.Submit(std::move(request));
  pipeline.Fill();
  pipeline.core.Drain(absl::UnavailableError("the server is shutting down"));
  request = MakeRequest(3, 40, 30);
  request->past.emplace();
  pipeline.Submit(std::move(request));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Running and waiting sequences of a lost pipeline go on elsewhere, in their order") {
  SchedulerConfig config = SmallConfig(2, 200);
  config.max_sequences = 3;
  CorePipeline other(config);
  std::vector<SequenceId> moved;
  CorePipeline lost(config, MovesTo(&other, &moved));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 5; ++id) {
    auto request = MakeRequest(id, 40, 20);
    request->sampling.set_n_prompt_logprobs(0);
    sinks.push_back(lost.Submit(std::move(request)));
  }
  lost.Fill();
  lost.Turn(9);
  const SequenceTimes before = sinks[0]->record().times;
  REQUIRE(!sinks[0]->record().tokens.empty());
  lost.Interrupt();
  CHECK(!lost.PlanOne());
  CHECK(moved == std::vector<SequenceId>{1, 2, 3, 4, 5});
  CHECK(lost.core.empty());
  other.RunToEnd();
  lost.RequireAllAsAlone();
  for (const auto& sink : sinks) CHECK(sink->record().prompt_logprobs.size() == 39);
  CHECK(sinks[0]->record().times.queue_ms == before.queue_ms);
  lost.Resume();
  lost.Submit(MakeRequest(6, 40, 20));
  lost.RunToEnd();
  lost.RequireAllAsAlone();
}

TEST_CASE("Sequences of a pipeline that is lost for good go on elsewhere, also later ones") {
  CorePipeline other(SmallConfig(2, 200));
  std::vector<SequenceId> moved;
  CorePipeline lost(SmallConfig(2, 200), MovesTo(&other, &moved));
  for (SequenceId id = 1; id <= 3; ++id) lost.Submit(MakeRequest(id, 40, 20));
  lost.Fill();
  lost.Turn(5);
  lost.core.Down(kLoss);
  lost.Submit(MakeRequest(4, 40, 20));
  CHECK(moved == std::vector<SequenceId>{1, 2, 3, 4});
  other.RunToEnd();
  lost.RequireAllAsAlone();
}

TEST_CASE("A request that kills pipelines is found at the second one, and the others live") {
  // Every pipeline is lost as soon as it executes a step of the poisonous sequence.
  constexpr SequenceId kPoison = 3;
  const SchedulerConfig config = SmallConfig(2, 200);
  std::map<SequenceId, std::shared_ptr<RecordingSink>> sinks;
  std::map<SequenceId, std::vector<int32_t>> expected;
  std::vector<std::unique_ptr<SchedulerCore>> cores;
  std::vector<std::unique_ptr<StrictStage>> stages;
  std::vector<PipelineState> states(3, PipelineState::kWorks);
  std::vector<int> losses(3);
  const auto works = [&](size_t i) { return states[i] == PipelineState::kWorks; };
  const auto place = [&](std::vector<std::unique_ptr<SequenceRequest>> requests) {
    size_t to = 0;
    while (!works(to)) ++to;
    for (auto& request : requests) {
      cores[to]->Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
    }
  };
  for (size_t i = 0; i < states.size(); ++i) {
    stages.push_back(std::make_unique<StrictStage>(config));
    cores.push_back(std::make_unique<SchedulerCore>(
        config, SchedulerHooks{.on_state = [&, i](PipelineState state) { states[i] = state; },
                               .may_move = [&] { return works(0) || works(1) || works(2); },
                               .move = place}));
  }
  for (SequenceId id = 1; id <= 6; ++id) {
    auto request = MakeRequest(id, 40, 20);
    expected[id] = TokensAlone(*request, config.max_model_len);
    request->sink = sinks[id] = std::make_shared<RecordingSink>();
    cores[id % 3]->Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
  }
  const auto is_deadly = [&](const SchedulerCore& core) {
    for (const InFlightStep& step : core.state().in_flight()) {
      for (const auto& row : step.rows) {
        if (row.sequence->id() == kPoison) return true;
      }
    }
    return false;
  };
  for (int turn = 0; turn < 400; ++turn) {
    const size_t i = static_cast<size_t>(turn) % cores.size();
    if (!works(i)) {
      if (turn % 7 != 0) continue;  // it takes a while
      const uint64_t epoch = cores[i]->state().epoch() + 1;
      stages[i]->BeginEpoch(epoch);
      cores[i]->Resume(epoch, /*kv_kept=*/false);
    }
    std::unique_ptr<v1::StepPlan> plan = cores[i]->NextPlan();
    if (plan == nullptr) continue;
    if (is_deadly(*cores[i])) {
      ++losses[i];
      cores[i]->Interrupt(kLoss);
      cores[i]->NextPlan();  // moves what may go
    } else {
      cores[i]->Result(stages[i]->Apply(*plan));
    }
  }
  CHECK(sinks[kPoison]->record().error.code() == absl::StatusCode::kInternal);
  CHECK(losses[0] + losses[1] + losses[2] == 3);  // two, and the trial
  CHECK(std::count_if(losses.begin(), losses.end(), [](int n) { return n > 0; }) == 2);
  for (const auto& [id, sink] : sinks) {
    if (id != kPoison) CHECK(sink->record().tokens == expected[id]);
  }
}

}  // namespace
}  // namespace stagecoach::router
