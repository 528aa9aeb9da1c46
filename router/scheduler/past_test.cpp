// Sequences that an earlier router began.
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

TEST_CASE("A sequence with a past generates the rest of what it generates alone") {
  constexpr int kMostTokens = 40;
  for (const uint32_t n_past : {0u, 1u, 17u, 39u}) {
    auto request = MakeRequest(1, 50, kMostTokens);
    const std::vector<int32_t> all = TokensAlone(*request, SmallConfig(2, 400).max_model_len);
    request->past.emplace().tokens = {all.begin(), all.begin() + n_past};
    const auto sink = std::make_shared<RecordingSink>();
    request->sink = sink;
    CorePipeline pipeline(SmallConfig(2, 400));
    pipeline.core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
    pipeline.RunToEnd();
    CHECK(sink->record().tokens == std::vector<int32_t>(all.begin() + n_past, all.end()));
    CHECK(sink->record().finish == Finish::kLength);
    REQUIRE(pipeline.plans.front().registrations_size() == 1);
    CHECK(pipeline.plans.front().registrations(0).n_prompt() == 50);
    CHECK(pipeline.plans.front().registrations(0).tokens_size() == 50 + static_cast<int>(n_past));
  }
}

TEST_CASE("A sequence with a past reports only the prompt's other log-probabilities") {
  auto request = MakeRequest(1, 50, 5);
  request->sampling.set_n_prompt_logprobs(0);
  request->past.emplace().n_prompt_logprobs = 20;
  const auto sink = std::make_shared<RecordingSink>();
  request->sink = sink;
  CorePipeline pipeline(SmallConfig(2, 400));
  pipeline.core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
  pipeline.RunToEnd();
  CHECK(sink->record().prompt_logprobs.size() == 49 - 20);
}

TEST_CASE("A full queue refuses no sequence with a past") {
  SchedulerConfig config = SmallConfig(1, 400);
  config.max_waiting = 1;
  CorePipeline pipeline(config);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 4; ++id) {
    auto request = MakeRequest(id, 20, 5);
    request->past.emplace();
    request->sink = sinks.emplace_back(std::make_shared<RecordingSink>());
    pipeline.core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
  }
  pipeline.RunToEnd();
  for (const auto& sink : sinks) CHECK(sink->record().error.ok());
}

}  // namespace
}  // namespace stagecoach::router
