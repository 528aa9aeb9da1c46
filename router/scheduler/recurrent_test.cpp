// How the scheduler treats sequences of a model with recurrent layers. A StrictStage checks that
// every row finds the state of the tokens before it.
#include <algorithm>

#include "catch2/generators/catch_generators.hpp"
#include "common/kv_block.h"
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

SchedulerConfig RecurrentConfig(int n_stages, uint64_t n_blocks, uint32_t n_saved) {
  SchedulerConfig config = SmallConfig(n_stages, n_blocks);
  config.is_recurrent = true;
  config.n_states = static_cast<uint64_t>(config.max_sequences) + n_saved;
  return config;
}

std::unique_ptr<SequenceRequest> LikeFirst(SequenceId id, int n_common, int n_prompt,
                                           int max_tokens) {
  auto request = MakeRequest(id, n_prompt, max_tokens);
  BeginLike(*MakeRequest(1, n_common, 1), n_common, *request);
  return request;
}

uint32_t NCached(const std::shared_ptr<RecordingSink>& sink) {
  return sink->record().times.n_cached_tokens;
}

TEST_CASE("A sequence begins where a state was saved: at the end of an equal prompt") {
  CorePipeline pipeline(RecurrentConfig(2, 64, 8));
  pipeline.Submit(MakeRequest(1, 100, 4));
  pipeline.RunToEnd();
  const auto same = pipeline.Submit(LikeFirst(2, 100, 100, 4));
  const auto shorter = pipeline.Submit(LikeFirst(3, 70, 100, 4));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(same) == 96);
  CHECK(NCached(shorter) == 0);
}

TEST_CASE("Equal prompts of one step do not leave their place to another sequence of that step") {
  CorePipeline pipeline(RecurrentConfig(2, 64, 8));
  pipeline.Submit(MakeRequest(1, 20, 4));
  pipeline.Submit(LikeFirst(2, 20, 20, 4));
  pipeline.Submit(MakeRequest(3, 20, 4));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

// Three choices of one request, with ids from 1 on.
std::vector<std::shared_ptr<RecordingSink>> SubmitChoices(CorePipeline& pipeline, int n_prompt) {
  std::vector<std::unique_ptr<SequenceRequest>> choices;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 3; ++id) {
    choices.push_back(LikeFirst(id, n_prompt, n_prompt, 4));
    sinks.push_back(std::make_shared<RecordingSink>());
    choices.back()->sink = sinks.back();
  }
  pipeline.core.Submit(std::move(choices), std::chrono::steady_clock::now());
  pipeline.core.state().CheckConsistency();
  return sinks;
}

TEST_CASE("The choices of a request compute their prompt once") {
  SchedulerConfig config = RecurrentConfig(2, 64, 8);
  config.max_prefill_chunk = 32;
  CorePipeline pipeline(config);
  const auto sinks = SubmitChoices(pipeline, 100);
  // A later request does not wait for them.
  const auto other = pipeline.Submit(MakeRequest(4, 50, 4));
  REQUIRE(pipeline.PlanOne());
  CHECK(pipeline.plans.back().registrations_size() == 2);
  pipeline.RunToEnd();
  for (const auto& sink : sinks) CHECK(sink->record().tokens.size() == 4);
  CHECK(NCached(sinks[0]) == 0);
  CHECK(NCached(sinks[1]) == 96);
  CHECK(NCached(sinks[2]) == 96);
  CHECK(NCached(other) == 0);
  CHECK(pipeline.core.Snapshot().prompt_tokens == 100 + 2 * 4 + 50);
}

TEST_CASE("When the first choice of a request ends early, the next one takes its place") {
  CorePipeline pipeline(RecurrentConfig(2, 64, 8));
  const auto sinks = SubmitChoices(pipeline, 100);
  SECTION("before it is planned") { pipeline.core.Cancel(1); }
  SECTION("while it computes") {
    REQUIRE(pipeline.PlanOne());
    pipeline.core.Cancel(1);
  }
  SECTION("with one that follows") {
    pipeline.core.Cancel(2);
    pipeline.core.Cancel(1);
  }
  pipeline.core.state().CheckConsistency();
  pipeline.RunToEnd();
  CHECK(sinks[2]->record().tokens.size() == 4);
}

TEST_CASE("The state at the end of a prompt is saved for every size of chunks") {
  SchedulerConfig config = RecurrentConfig(1, 64, 8);
  config.max_prefill_chunk = GENERATE(1, 5, 16, 32, 48, 96, 99, 100, 128);
  for (const int n_prompt : {96, 97, 100, 111, 112}) {
    CorePipeline pipeline(config);
    pipeline.Submit(MakeRequest(1, n_prompt, 1));
    pipeline.RunToEnd();
    const auto same = pipeline.Submit(LikeFirst(2, n_prompt, n_prompt, 1));
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
    CHECK(NCached(same) == static_cast<uint32_t>((n_prompt - 1) / 16 * 16));
  }
}

TEST_CASE("A prompt of whole blocks is cached but for its last block") {
  CorePipeline pipeline(RecurrentConfig(1, 64, 8));
  pipeline.Submit(MakeRequest(1, 96, 1));
  pipeline.RunToEnd();
  const auto same = pipeline.Submit(LikeFirst(2, 96, 96, 1));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(same) == 80);
}

TEST_CASE("A prefix of P tokens reuses at least P - 2048 of them") {
  const int32_t chunk = GENERATE(50, 512, 3000);
  SchedulerConfig config = RecurrentConfig(2, 2000, 64);
  config.max_batched_tokens = config.max_prefill_chunk = chunk;
  config.max_model_len = 9000;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 7000, 1));
  pipeline.RunToEnd();
  SequenceId id = 1;
  for (const int n_common : {2049, 3000, 4095, 4096, 4100, 6143, 6500, 7000}) {
    const auto sink = pipeline.Submit(LikeFirst(++id, n_common, n_common + 100, 1));
    pipeline.RunToEnd();
    INFO("chunks of " << chunk << ", a prefix of " << n_common);
    CHECK(NCached(sink) + kTokensPerState >= static_cast<uint32_t>(n_common));
    CHECK(NCached(sink) <= static_cast<uint32_t>(n_common));
  }
  pipeline.RequireAllAsAlone();
}

TEST_CASE("A conversation goes on from the end of the last turn") {
  CorePipeline pipeline(RecurrentConfig(2, 64, 8));
  auto first = MakeRequest(1, 40, 60);
  const std::vector<int32_t> answer = TokensAlone(*first, 256);
  std::vector<int32_t> tokens = *first->prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  REQUIRE(tokens.size() == 100);
  pipeline.Submit(std::move(first));
  pipeline.RunToEnd();
  auto second = MakeRequest(2, 120, 4);
  auto prompt = *second->prompt;
  std::copy(tokens.begin(), tokens.end(), prompt.begin());
  second->prompt = std::make_shared<const std::vector<int32_t>>(std::move(prompt));
  const auto sink = pipeline.Submit(std::move(second));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(sink) == 96);
}

TEST_CASE("A decoding sequence has a place for its newest state, and one for the next") {
  CorePipeline pipeline(RecurrentConfig(1, 64, 3));
  pipeline.Submit(MakeRequest(1, 40, 200));
  pipeline.RunToEnd();
  // The state at the end of the prompt is still there.
  const auto same = pipeline.Submit(LikeFirst(2, 40, 40, 1));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(same) == 32);
}

TEST_CASE("A preempted sequence goes on from its newest state") {
  SchedulerConfig config = RecurrentConfig(2, 64, 8);
  config.preempt_every = 30;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 100, 100));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  const SchedulerSnapshot snapshot = pipeline.core.Snapshot();
  REQUIRE(snapshot.preemptions > 0);
  for (const v1::StepPlan& plan : pipeline.plans) {
    for (const v1::SlotRegistration& registration : plan.registrations()) {
      const auto n_tokens = static_cast<uint32_t>(registration.tokens_size());
      if (n_tokens == 100) continue;
      CHECK(registration.from_state() > 0);
      CHECK(n_tokens - plan.slots(0).start() <= kBlockTokens);
    }
  }
}

TEST_CASE("Without saved states, or without a prefix cache, all is computed") {
  SchedulerConfig config = RecurrentConfig(2, 64, 0);
  SECTION("no state") {}
  SECTION("no cache") {
    config.n_states += 8;
    config.prefix_cache = false;
  }
  config.preempt_every = 30;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 100, 40));
  pipeline.RunToEnd();
  const auto same = pipeline.Submit(LikeFirst(2, 100, 100, 40));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(same) == 0);
}

TEST_CASE("After a loss, sequences go on from what the stages have kept") {
  const bool kv_kept = GENERATE(false, true);
  CorePipeline pipeline(RecurrentConfig(2, 64, 8));
  const auto sink = pipeline.Submit(MakeRequest(1, 100, 60));
  pipeline.Fill();
  while (sink->record().tokens.size() < 30) pipeline.Turn(1);
  const size_t n_before = pipeline.plans.size();
  pipeline.Interrupt(1);
  pipeline.Resume(kv_kept);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  const v1::SlotDelta& first = pipeline.plans[n_before].slots(0);
  CHECK((first.start() >= 112) == kv_kept);
  CHECK((first.start() == 0) == !kv_kept);
}

TEST_CASE("Each sequence needs a state") {
  SchedulerConfig config = RecurrentConfig(1, 64, 0);
  --config.n_states;
  CHECK(absl::IsInvalidArgument(ValidateConfig(config)));
}

}  // namespace
}  // namespace stagecoach::router
