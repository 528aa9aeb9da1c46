// How the scheduler treats sequences with a common prefix. A StrictStage checks every plan: it
// compares the data that a row reads with the data that the sequence itself would have written.
#include <algorithm>

#include "router/scheduler/planner.h"
#include "router/scheduler/state.h"
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

// A request whose first n_common tokens are those of request 1.
std::unique_ptr<SequenceRequest> LikeFirst(SequenceId id, int n_common, int n_prompt,
                                           int max_tokens) {
  auto request = MakeRequest(id, n_prompt, max_tokens);
  BeginLike(*MakeRequest(1, n_common, 1), n_common, *request);
  return request;
}

TEST_CASE("A sequence starts at the end of its prefix match") {
  CorePipeline pipeline(SmallConfig(1, 64));
  pipeline.Submit(MakeRequest(1, 100, 4));
  pipeline.RunToEnd();
  const auto second = pipeline.Submit(LikeFirst(2, 70, 100, 4));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(second->record().times.n_cached_tokens == 64);
  const SchedulerSnapshot snapshot = pipeline.core.Snapshot();
  CHECK(snapshot.prefix_hits == 64);
  CHECK(snapshot.prefix_queries == 200);
  CHECK(snapshot.prompt_tokens == 136);
}

TEST_CASE("The prefix match of a queued prompt is looked up if it decides step sizes") {
  for (const int32_t n_microbatches : {1, 2}) {
    SchedulerState state(SmallConfig(n_microbatches, 64));
    state.Add(MakeRequest(1, 100, 4), {});
    Sequence* const first = state.Find(1);
    state.Admit(first);
    v1::SlotDelta delta;
    state.kv().Grow(first->tables, 100, delta);
    first->next_position = 100;
    state.Remember(first);
    state.Add(LikeFirst(2, 70, 100, 4), {});
    CHECK(state.waiting().n_to_prefill() == (n_microbatches == 1 ? 100 : 100 - 64));
    state.Admit(state.Find(2));
    CHECK(state.Find(2)->n_to_prefill == 100 - 64);
  }
}

TEST_CASE("Planned blocks can be shared before their result arrives") {
  CorePipeline pipeline(SmallConfig(4, 64));
  pipeline.Submit(MakeRequest(1, 100, 4));
  REQUIRE(pipeline.PlanOne());
  REQUIRE(pipeline.plans.front().slots(0).n_tokens() < 100);
  pipeline.Submit(LikeFirst(2, 100, 100, 4));
  REQUIRE(pipeline.PlanOne());
  const v1::StepPlan& plan = pipeline.plans.back();
  REQUIRE(plan.registrations_size() == 1);
  const v1::SlotDelta& delta = *plan.slots().rbegin();
  CHECK(delta.slot() == plan.registrations(0).slot());
  CHECK(delta.start() == 96);  // this plan computes the last part of the prefix
  CHECK(delta.new_blocks(0).ids_size() ==
        static_cast<int>(BlocksFor(delta.start() + delta.n_tokens())));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Sequences in one plan share what the first of them computes") {
  CorePipeline pipeline(SmallConfig(1, 64));
  for (SequenceId id = 1; id <= 3; ++id) pipeline.Submit(LikeFirst(id, 40, 40, 4));
  REQUIRE(pipeline.PlanOne());
  const v1::StepPlan& plan = pipeline.plans.front();
  REQUIRE(plan.slots_size() == 3);
  CHECK(plan.slots(0).start() == 0);
  for (int i : {1, 2}) {
    CHECK(plan.slots(i).start() == 32);
    CHECK(plan.slots(i).new_blocks(0).ids(1) == plan.slots(0).new_blocks(0).ids(1));
    CHECK(plan.slots(i).new_blocks(0).ids(2) != plan.slots(0).new_blocks(0).ids(2));
  }
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("The choices of a request are planned with the chunks of one choice") {
  SchedulerConfig config = SmallConfig(2, 600);
  config.max_batched_tokens = config.max_prefill_chunk = config.max_model_len = 4096;
  CorePipeline one(config), four(config);
  one.Submit(MakeRequest(1, 2048, 4));
  std::vector<std::unique_ptr<SequenceRequest>> choices;
  for (SequenceId id = 1; id <= 4; ++id) {
    choices.push_back(LikeFirst(id, 2048, 2048, 4));
    choices.back()->sink = std::make_shared<RecordingSink>();
  }
  four.core.Submit(std::move(choices), std::chrono::steady_clock::now());
  REQUIRE(one.PlanOne());
  REQUIRE(four.PlanOne());
  CHECK(four.plans[0].slots(0).n_tokens() == one.plans[0].slots(0).n_tokens());
}

TEST_CASE("A step registers a bounded number of prompt tokens, even after long prefix matches") {
  SchedulerConfig config = SmallConfig(1, 600);
  config.max_sequences = 64;
  config.max_model_len = 4096;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 2048, 1));
  pipeline.RunToEnd();
  for (SequenceId id = 2; id <= 60; ++id) pipeline.Submit(LikeFirst(id, 2048, 2049, 4));
  const size_t n_before = pipeline.plans.size();
  pipeline.RunToEnd();
  for (size_t i = n_before; i < pipeline.plans.size(); ++i) {
    int n_registered = 0;
    for (const auto& registration : pipeline.plans[i].registrations()) {
      n_registered += registration.tokens_size();
    }
    CHECK(n_registered <= kRegisteredSteps * config.max_batched_tokens + 2049);
  }
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Prompts with a long prefix match are planned like their uncached ends") {
  SchedulerConfig config = SmallConfig(2, 400);
  config.max_batched_tokens = config.max_prefill_chunk = config.max_model_len = 4096;
  constexpr int kCommon = 2048, kOwn = 320;
  CorePipeline alone(config), behind(config);
  behind.Submit(MakeRequest(1, kCommon, 1));
  behind.RunToEnd();
  const size_t n_before = behind.plans.size();
  for (SequenceId id = 2; id <= 4; ++id) {
    alone.Submit(MakeRequest(id, kOwn, 4));
    behind.Submit(LikeFirst(id, kCommon, kCommon + kOwn, 4));
  }
  // The budget of the first step counts the queue; the budgets of the others count running
  // prefills.
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(alone.PlanOne());
    REQUIRE(behind.PlanOne());
    CHECK(behind.plans[n_before + i].slots(0).n_tokens() == alone.plans[i].slots(0).n_tokens());
  }
}

TEST_CASE("A preempted sequence continues from its own blocks if they are still cached") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.preempt_every = 20;
  CorePipeline pipeline(config);
  const auto sink = pipeline.Submit(MakeRequest(1, 100, 60));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(sink->record().times.preemptions > 0);
  CHECK(sink->record().times.n_cached_tokens == 0);  // counts only the first admission
  for (size_t i = 1; i < pipeline.plans.size(); ++i) {
    if (pipeline.plans[i].registrations().empty()) continue;
    CHECK(pipeline.plans[i].slots(0).n_tokens() <= 16);
  }
}

TEST_CASE("With a common prefix, more sequences run at once than fit without sharing") {
  // 240 tokens plus one take 16 blocks, 15 of which are shared.
  CorePipeline pipeline(SmallConfig(1, 40));
  pipeline.Submit(MakeRequest(1, 240, 1));
  pipeline.RunToEnd();
  for (SequenceId id = 2; id <= 9; ++id) pipeline.Submit(LikeFirst(id, 240, 241, 8));
  pipeline.Fill();
  CHECK(pipeline.core.Snapshot().running == 8);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Prompts with logprobs or another salt use no prefix match") {
  CorePipeline pipeline(SmallConfig(1, 64));
  pipeline.Submit(MakeRequest(1, 100, 4));
  pipeline.RunToEnd();
  auto with_logprobs = MakeRequest(1, 100, 4);
  with_logprobs->sampling.set_n_prompt_logprobs(0);
  auto salted = MakeRequest(2, 100, 4);
  salted->prompt = with_logprobs->prompt;
  salted->cache_salt = "b";
  const auto first = pipeline.Submit(std::move(with_logprobs));
  const auto second = pipeline.Submit(std::move(salted));
  pipeline.RunToEnd();
  CHECK(first->record().prompt_logprobs.size() == 99);
  CHECK(first->record().times.n_cached_tokens == 0);
  CHECK(second->record().times.n_cached_tokens == 0);
}

TEST_CASE("A better priority is admitted although the victims share their blocks") {
  SchedulerConfig config = SmallConfig(1, 24);
  CorePipeline pipeline(config);
  for (SequenceId id = 1; id <= 4; ++id) {
    auto bulk = LikeFirst(id, 160, 161, 60);
    bulk->priority = 5;
    pipeline.Submit(std::move(bulk));
    pipeline.PlanOne();
  }
  pipeline.Turn(2);
  REQUIRE(pipeline.core.Snapshot().running >= 2);
  auto urgent = MakeRequest(7, 250, 4);
  const auto sink = pipeline.Submit(std::move(urgent));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(sink->record().times.preemptions == 0);
}

TEST_CASE("Sequences that share blocks are not preempted if that does not free enough") {
  SchedulerConfig config = SmallConfig(1, 40);
  config.max_model_len = config.max_batched_tokens = config.max_prefill_chunk = 512;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(7, 300, 100));
  for (SequenceId id = 1; id <= 2; ++id) {
    auto bulk = LikeFirst(id, 240, 241, 100);
    bulk->priority = 5;
    pipeline.Submit(std::move(bulk));
  }
  pipeline.Fill();
  REQUIRE(pipeline.core.Snapshot().running == 3);
  // Without these two, 20 blocks would be free: they have 32 blocks in their tables and share 15.
  auto urgent = MakeRequest(9, 400, 10);
  urgent->priority = 1;
  pipeline.Submit(std::move(urgent));
  pipeline.Turn(4);
  CHECK(pipeline.core.Snapshot().preemptions == 0);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

}  // namespace
}  // namespace stagecoach::router
