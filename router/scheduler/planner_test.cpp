// The contents of single steps: shares, plan-ahead, chunks, budgets.
#include "router/scheduler/planner.h"

#include <algorithm>
#include <set>

#include "catch2/generators/catch_generators.hpp"
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

std::set<uint32_t> SlotsOf(const v1::StepPlan& plan) {
  std::set<uint32_t> slots;
  for (const auto& delta : plan.slots()) slots.insert(delta.slot());
  return slots;
}

TEST_CASE("A single sequence has at most one unknown token") {
  for (int n_stages : {1, 2, 4}) {
    CorePipeline pipeline(SmallConfig(n_stages, 64));
    pipeline.Submit(MakeRequest(1, 10, 20));
    pipeline.Fill();
    // The prompt, and the decode of its first token. A second decode would have two unknown tokens.
    REQUIRE(pipeline.plans.size() == 2);
    REQUIRE(pipeline.plans[1].slots(0).start() == 10);
    pipeline.Turn(1);
    REQUIRE(pipeline.plans.size() == 3);
    pipeline.RunToEnd();
    // The last plan only tells of the end.
    REQUIRE(pipeline.plans.size() == 21);
    REQUIRE(pipeline.plans.back().slots_size() == 0);
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("Without plan-ahead one step is in flight, with the same tokens") {
  for (int n_stages : {1, 2}) {
    SchedulerConfig config = SmallConfig(n_stages, 64);
    config.plan_ahead = false;
    CorePipeline pipeline(config);
    for (SequenceId id = 1; id <= 4; ++id) pipeline.Submit(MakeRequest(id, 20, 30));
    pipeline.Fill();
    REQUIRE(pipeline.plans.size() == 1);
    pipeline.Turn(1);
    REQUIRE(pipeline.plans.size() == 2);
    // One microbatch per turn, which holds every sequence.
    REQUIRE(pipeline.plans[1].slots_size() == 4);
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("A trace contains the same decodes with and without plan-ahead") {
  for (const bool plan_ahead : {true, false}) {
    SchedulerConfig config = SmallConfig(2, 64);
    config.plan_ahead = plan_ahead;
    CorePipeline pipeline(config);
    std::unique_ptr<SequenceRequest> request = MakeRequest(1, 10, 70);
    request->trace_id = TraceId{1, 2, 3};
    pipeline.Submit(std::move(request));
    pipeline.RunToEnd();
    std::vector<uint32_t> traced;
    for (const v1::StepPlan& plan : pipeline.plans) {
      if (plan.traces_size() > 0) traced.push_back(plan.slots(0).start());
    }
    REQUIRE(traced == std::vector<uint32_t>{0, 10, 74});
  }
}

TEST_CASE("Decodes spread evenly over the stages, with one more microbatch planned ahead") {
  CorePipeline pipeline(SmallConfig(4, 256));
  for (SequenceId id = 1; id <= 8; ++id) pipeline.Submit(MakeRequest(id, 8, 100));
  pipeline.Fill();
  pipeline.Turn(40);
  REQUIRE(pipeline.core.Snapshot().in_flight == 5);
  const size_t n = pipeline.plans.size();
  for (size_t i = n - 8; i < n; ++i) {
    REQUIRE(pipeline.plans[i].slots_size() == 2);
    // Each sequence once per turn.
    REQUIRE(SlotsOf(pipeline.plans[i]) == SlotsOf(pipeline.plans[i - 4]));
  }
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("While prompts fill the steps, one more microbatch is in flight") {
  SchedulerConfig config = SmallConfig(2, 512);
  config.break_even_rows = 4;
  CorePipeline pipeline(config);
  for (SequenceId id = 1; id <= 6; ++id) pipeline.Submit(MakeRequest(id, 8, 100));
  pipeline.Fill();
  pipeline.Turn(10);
  REQUIRE(pipeline.core.Snapshot().in_flight == 3);
  REQUIRE(pipeline.plans.back().slots_size() == 3);
  for (SequenceId id = 7; id <= 16; ++id) pipeline.Submit(MakeRequest(id, 200, 4));
  pipeline.Turn(4);
  REQUIRE(pipeline.core.Snapshot().in_flight == 4);
  size_t n_decodes = 0;
  for (const auto& delta : pipeline.plans.back().slots()) n_decodes += delta.slot() < 6 ? 1 : 0;
  REQUIRE(n_decodes == 2);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("A prompt with a better priority does not wait for decodes that fill the steps") {
  SchedulerConfig config = SmallConfig(1, 512);
  config.max_batched_tokens = 16;
  config.max_sequences = 32;
  CorePipeline pipeline(config);
  for (SequenceId id = 1; id <= 16; ++id) {
    auto bulk = MakeRequest(id, 8, 200);
    bulk->priority = 5;
    pipeline.Submit(std::move(bulk));
  }
  pipeline.Fill();
  pipeline.Turn(60);
  auto urgent = MakeRequest(20, 20, 4);
  urgent->priority = -1;
  const auto sink = pipeline.Submit(std::move(urgent));
  pipeline.Turn(60);
  CHECK(sink->record().finish != Finish::kNone);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("With one stage, a new sequence joins the microbatch of the others") {
  CorePipeline pipeline(SmallConfig(1, 256));
  for (SequenceId id = 1; id <= 3; ++id) pipeline.Submit(MakeRequest(id, 8, 100));
  pipeline.Fill();
  pipeline.Turn(5);
  pipeline.Submit(MakeRequest(4, 8, 100));
  pipeline.Turn(4);
  REQUIRE(pipeline.plans.back().slots_size() == 4);
  pipeline.Turn(1);
  REQUIRE(pipeline.plans.back().slots_size() == 4);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Decodes continue in every turn while a long prompt is prefilled") {
  for (int n_stages : {1, 2}) {
    SchedulerConfig config = SmallConfig(n_stages, 256);
    config.max_batched_tokens = 16;
    CorePipeline pipeline(config);
    pipeline.Submit(MakeRequest(1, 4, 100));
    pipeline.Fill();
    pipeline.Turn(4);
    const size_t first = pipeline.plans.size();
    pipeline.Submit(MakeRequest(2, 200, 10));
    pipeline.Turn(8);
    size_t n_decodes = 0;
    for (size_t i = first; i < first + 8; ++i) {
      for (const auto& delta : pipeline.plans[i].slots()) n_decodes += delta.slot() == 0 ? 1 : 0;
    }
    REQUIRE(n_decodes >= 8u / static_cast<size_t>(n_stages) - 1);
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
  }
}

TEST_CASE("Nothing is planned beyond max_tokens or the context length") {
  CorePipeline pipeline(SmallConfig(2, 64));
  pipeline.Submit(MakeRequest(1, 10, 1));
  pipeline.Submit(MakeRequest(2, 255, 50));  // room for one token
  auto request = MakeRequest(3, 250, 50);    // room for six tokens
  auto sink = pipeline.Submit(std::move(request));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  REQUIRE(sink->record().tokens.size() == 6);
  REQUIRE(sink->record().finish == Finish::kLength);
  size_t n_samples = 0;
  for (const auto& plan : pipeline.plans) {
    for (const auto& delta : plan.slots()) n_samples += delta.sample() ? 1 : 0;
  }
  REQUIRE(n_samples == 8);
}

TEST_CASE("A stop token drops the row planned ahead and releases the slot in the next plan") {
  CorePipeline pipeline(SmallConfig(1, 64));
  auto request = MakeRequest(1, 10, 100);
  const std::vector<int32_t> alone = TokensAlone(*request, 256);
  // Stops at the first occurrence of the token that is generated fourth.
  const auto stop = std::find(alone.begin(), alone.end(), alone[3]) - alone.begin();
  request->sampling.add_stop_ids(alone[3]);
  auto sink = pipeline.Submit(std::move(request));
  auto other = pipeline.Submit(MakeRequest(2, 10, 100));
  pipeline.Fill();
  while (sink->record().finish == Finish::kNone) pipeline.Turn(1);
  REQUIRE(sink->record().finish == Finish::kStopToken);
  REQUIRE(sink->record().tokens.size() == static_cast<size_t>(stop) + 1);
  const v1::StepPlan& ahead = pipeline.plans[pipeline.plans.size() - 2];
  REQUIRE(ahead.slots_size() == 2);
  REQUIRE(pipeline.plans.back().release_size() == 1);
  REQUIRE(pipeline.plans.back().slots_size() == 1);
  // Another sequence gets the slot at once, while the result of the old row is still in flight.
  pipeline.Submit(MakeRequest(3, 10, 5));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  REQUIRE(sink->record().n_after_end == 0);
}

TEST_CASE("Stages get the release of the last sequences although no row follows") {
  const bool cancelled = GENERATE(false, true);
  CorePipeline pipeline(SmallConfig(2, 64));
  const auto released = [&pipeline] {
    int n = 0;
    for (const v1::StepPlan& plan : pipeline.plans) n += plan.release_size();
    return n;
  };
  for (SequenceId id : {1, 2}) pipeline.Submit(MakeRequest(id, 10, 5));
  pipeline.Fill();
  if (cancelled) {
    for (SequenceId id : {1, 2}) pipeline.core.Cancel(id);
    // Steps are in flight, so nothing is sent for the ends alone.
    REQUIRE_FALSE(pipeline.PlanOne());
  }
  pipeline.RunToEnd();
  REQUIRE(released() == 2);
  REQUIRE(pipeline.plans.back().slots_size() == 0);
  REQUIRE(pipeline.core.Snapshot().in_flight == 0);
  // Nothing more to tell.
  REQUIRE_FALSE(pipeline.PlanOne());
  if (!cancelled) pipeline.RequireAllAsAlone();
  const size_t n_plans = pipeline.plans.size();
  const auto late = pipeline.Submit(MakeRequest(3, 10, 5));
  pipeline.RunToEnd();
  REQUIRE(late->record().tokens.size() == 5);
  REQUIRE(released() == 3);
  REQUIRE(pipeline.plans.size() > n_plans);
}

TEST_CASE("min_tokens prevents a stop token from ending a sequence") {
  CorePipeline pipeline(SmallConfig(1, 64));
  auto request = MakeRequest(1, 10, 100);
  for (int32_t id = 0; id < TokenSource::kVocabularySize / 2; ++id) {
    request->sampling.add_stop_ids(id);
  }
  request->sampling.set_min_tokens(30);
  auto sink = pipeline.Submit(std::move(request));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  REQUIRE(sink->record().tokens.size() > 30);
  REQUIRE(sink->record().finish == Finish::kStopToken);
}

TEST_CASE("min_tokens does not prevent a grammar's end from ending a sequence") {
  CorePipeline pipeline(SmallConfig(1, 64));
  auto request = MakeRequest(1, 10, 100);
  const std::vector<int32_t> alone = TokensAlone(*request, 256);
  // Only an end id of the grammar: this stage never samples stop ids before min_tokens.
  request->sampling.mutable_grammar()->add_end_ids(alone[5]);
  request->sampling.set_min_tokens(30);
  const auto end = std::find(alone.begin(), alone.end(), alone[5]) - alone.begin();
  auto sink = pipeline.Submit(std::move(request));
  pipeline.RunToEnd();
  REQUIRE(sink->record().tokens.size() == static_cast<size_t>(end) + 1);
  REQUIRE(sink->record().finish == Finish::kStopToken);
}

TEST_CASE("Chunks of one prompt are in flight together, and only the last one samples") {
  SchedulerConfig config = SmallConfig(2, 64);
  config.max_prefill_chunk = 70;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 200, 4));
  pipeline.Fill();
  REQUIRE(pipeline.plans.size() == 3);
  REQUIRE(pipeline.plans[0].registrations_size() == 1);
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(pipeline.plans[i].slots(0).start() == i * 64);  // throttled to the minimum
    REQUIRE(pipeline.plans[i].slots(0).n_tokens() == 64);
    REQUIRE_FALSE(pipeline.plans[i].slots(0).sample());
  }
  pipeline.Turn(1);
  REQUIRE(pipeline.plans[3].slots(0).n_tokens() == 8);
  REQUIRE(pipeline.plans[3].slots(0).sample());
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Chunks of a prompt do not shrink near its end") {
  SchedulerConfig config = SmallConfig(4, 600);
  config.max_batched_tokens = config.max_prefill_chunk = 8192;
  config.max_model_len = 8200;
  config.break_even_rows = 200;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 8192, 2));
  pipeline.Fill();
  pipeline.Turn(15);
  REQUIRE(pipeline.plans.size() >= 16);
  for (size_t i = 0; i < 16; ++i) REQUIRE(pipeline.plans[i].slots(0).n_tokens() == 512);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("A free slot is not filled by one large step, even if many requests wait") {
  SchedulerConfig config = SmallConfig(2, 512);
  config.max_sequences = 2;
  config.max_batched_tokens = 512;
  config.max_prefill_chunk = 512;
  config.break_even_rows = 100;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 8, 4));
  pipeline.Submit(MakeRequest(2, 8, 60));
  for (SequenceId id = 3; id <= 40; ++id) pipeline.Submit(MakeRequest(id, 200, 20));
  pipeline.Fill();
  pipeline.Turn(20);
  const auto& plans = pipeline.plans;
  const auto admits_third = [](const v1::StepPlan& plan) {
    return plan.registrations_size() == 1 && plan.registrations(0).n_prompt() == 200;
  };
  const auto third = std::find_if(plans.begin(), plans.end(), admits_third);
  REQUIRE(third != plans.end());
  // For all 38 prompts together, the budget would be a chunk of 423 tokens or more.
  for (const auto& delta : third->slots()) REQUIRE(delta.n_tokens() <= 128);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("The token budget counts decodes first, and chunks are bounded") {
  SchedulerConfig config = SmallConfig(1, 256);
  config.max_batched_tokens = 32;
  config.max_prefill_chunk = 24;
  CorePipeline pipeline(config);
  for (SequenceId id = 1; id <= 6; ++id) pipeline.Submit(MakeRequest(id, 3, 50));
  pipeline.Fill();
  pipeline.Turn(3);
  pipeline.Submit(MakeRequest(7, 100, 5));
  pipeline.Submit(MakeRequest(8, 100, 5));
  pipeline.Turn(1);
  const v1::StepPlan& plan = pipeline.plans.back();
  REQUIRE(plan.slots_size() == 8);
  REQUIRE(plan.slots(6).n_tokens() == 24);
  REQUIRE(plan.slots(7).n_tokens() == 2);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("Blocks behind a window are free once no row can see them") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.kv_groups.push_back({.window = 32, .n_blocks = 16});
  config.max_prefill_chunk = 16;
  CorePipeline pipeline(config);
  pipeline.Submit(MakeRequest(1, 200, 50));
  pipeline.Fill();
  pipeline.Turn(40);
  const SchedulerSnapshot snapshot = pipeline.core.Snapshot();
  REQUIRE(snapshot.running == 1);
  REQUIRE(snapshot.kv[0].total_blocks - snapshot.kv[0].free_blocks >= 13);
  REQUIRE(snapshot.kv[1].total_blocks - snapshot.kv[1].free_blocks <= 3);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

}  // namespace
}  // namespace stagecoach::router
