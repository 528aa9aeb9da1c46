// The distribution of scarce blocks: admission, priorities, preemption by recompute.
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

TEST_CASE("Two large sequences in a pool for one both finish; the younger one is preempted") {
  for (int n_stages : {1, 2, 4}) {
    CorePipeline pipeline(SmallConfig(n_stages, 20));
    auto older = pipeline.Submit(MakeRequest(1, 100, 150));
    auto younger = pipeline.Submit(MakeRequest(2, 100, 150));
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
    REQUIRE(older->record().times.preemptions == 0);
    REQUIRE(younger->record().times.preemptions >= 1);
    REQUIRE(younger->record().times.preemptions <= 2);
  }
}

TEST_CASE("A preempted sequence is registered again when none of its steps is in flight") {
  CorePipeline pipeline(SmallConfig(1, 20));
  pipeline.Submit(MakeRequest(1, 100, 150));
  auto younger = pipeline.Submit(MakeRequest(2, 100, 150));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  uint32_t n_registrations = 0;
  for (const auto& plan : pipeline.plans) {
    for (const auto& registration : plan.registrations()) {
      ++n_registrations;
      REQUIRE(registration.n_prompt() == 100);
      if (n_registrations == 3) REQUIRE(registration.tokens_size() > 100);
    }
  }
  REQUIRE(n_registrations == 2 + younger->record().times.preemptions);
}

TEST_CASE("The victim has the worst priority, then the youngest arrival") {
  CorePipeline pipeline(SmallConfig(1, 32));
  auto bulk = MakeRequest(1, 100, 100);
  bulk->priority = 5;
  auto bulk_sink = pipeline.Submit(std::move(bulk));
  auto older = pipeline.Submit(MakeRequest(2, 100, 100));
  auto younger = pipeline.Submit(MakeRequest(3, 100, 100));
  pipeline.Fill();
  while (pipeline.core.Snapshot().preemptions == 0) pipeline.Turn(1);
  while (bulk_sink->record().times.preemptions == 0) pipeline.Turn(1);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  REQUIRE(older->record().times.preemptions == 0);
}

TEST_CASE("A strictly better priority preempts a running sequence, an equal one waits") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.max_sequences = 1;
  CorePipeline pipeline(config);
  auto first = pipeline.Submit(MakeRequest(1, 20, 100));
  pipeline.Fill();
  pipeline.Turn(5);
  auto equal = pipeline.Submit(MakeRequest(2, 20, 100));
  pipeline.Turn(5);
  REQUIRE(pipeline.core.Snapshot().preemptions == 0);
  auto urgent = MakeRequest(3, 20, 10);
  urgent->priority = -1;
  auto urgent_sink = pipeline.Submit(std::move(urgent));
  while (urgent_sink->record().finish == Finish::kNone) pipeline.Turn(1);
  REQUIRE(first->record().finish == Finish::kNone);
  REQUIRE(equal->record().tokens.empty());
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  REQUIRE(first->record().times.preemptions == 1);
  REQUIRE(equal->record().times.preemptions == 0);
}

TEST_CASE("Nothing is preempted if it does not free enough blocks for a better priority") {
  CorePipeline pipeline(SmallConfig(1, 20));
  auto big = pipeline.Submit(MakeRequest(1, 200, 40));
  auto bulk = MakeRequest(2, 40, 40);
  bulk->priority = 5;
  auto bulk_sink = pipeline.Submit(std::move(bulk));
  pipeline.Fill();
  auto urgent = MakeRequest(3, 200, 10);  // never fits beside the first one
  urgent->priority = 1;
  pipeline.Submit(std::move(urgent));
  pipeline.Turn(4);
  REQUIRE(pipeline.core.Snapshot().preemptions == 0);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  REQUIRE(big->record().times.preemptions == 0);
}

TEST_CASE("Admission is in arrival order: a small request does not overtake a large one") {
  CorePipeline pipeline(SmallConfig(1, 20));
  pipeline.Submit(MakeRequest(1, 200, 40));
  auto big = pipeline.Submit(MakeRequest(2, 200, 1));
  auto small = pipeline.Submit(MakeRequest(3, 5, 1));
  pipeline.Fill();
  while (small->record().tokens.empty()) {
    pipeline.Turn(1);
    if (!small->record().tokens.empty()) REQUIRE_FALSE(big->record().tokens.empty());
  }
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
}

TEST_CASE("131 prompts of 2,040 tokens pass through a pool for three") {
  for (int n_stages : {1, 2, 4}) {
    SchedulerConfig config = SmallConfig(n_stages, 3 * 128 + 5);
    config.max_sequences = 256;
    config.max_batched_tokens = 512;
    config.max_prefill_chunk = 512;
    config.max_model_len = 2048;
    CorePipeline pipeline(config);
    for (SequenceId id = 1; id <= 131; ++id) pipeline.Submit(MakeRequest(id, 2040, 8));
    pipeline.Fill();
    REQUIRE(pipeline.core.Snapshot().waiting >= 128);
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
    // Admission reserves the prompts' blocks, so hardly any prefill is lost.
    REQUIRE(pipeline.core.Snapshot().preemptions <= 10);
  }
}

TEST_CASE("A cancelled sequence's blocks are free before the next step is planned") {
  CorePipeline pipeline(SmallConfig(1, 16));
  auto big = pipeline.Submit(MakeRequest(1, 200, 50));
  auto next = pipeline.Submit(MakeRequest(2, 200, 5));
  pipeline.Fill();
  pipeline.Turn(4);
  REQUIRE(next->record().tokens.empty());
  REQUIRE(pipeline.core.Snapshot().waiting == 1);
  const size_t n_tokens = big->record().tokens.size();
  pipeline.core.Cancel(1);
  const SchedulerSnapshot snapshot = pipeline.core.Snapshot();
  REQUIRE(snapshot.kv[0].free_blocks == snapshot.kv[0].total_blocks);
  pipeline.Turn(1);
  REQUIRE(pipeline.plans.back().release_size() == 1);
  REQUIRE(pipeline.plans.back().registrations_size() == 1);
  pipeline.RunToEnd();
  REQUIRE(big->record().tokens.size() == n_tokens);
  REQUIRE(next->record().tokens.size() == 5);
  pipeline.core.Cancel(1);  // cancelling a sequence that has ended does nothing
  pipeline.core.Cancel(77);
}

TEST_CASE("Prompt logprobs come once and in order despite preemptions") {
  SchedulerConfig config = SmallConfig(2, 40);
  config.max_prefill_chunk = 30;
  config.max_sequences = 2;
  CorePipeline pipeline(config);
  auto request = MakeRequest(1, 120, 60);
  request->priority = 1;
  request->sampling.set_n_prompt_logprobs(0);
  auto sink = pipeline.Submit(std::move(request));
  pipeline.Fill();
  pipeline.Turn(1);
  for (SequenceId id = 2; id <= 5; ++id) {  // first during its prefill, then after it
    auto urgent = MakeRequest(id, 150, 40);
    pipeline.Submit(std::move(urgent));
    pipeline.Turn(id == 2 ? 1 : 100);
  }
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  const RecordingSink::Record record = sink->record();
  REQUIRE(record.times.preemptions >= 1);
  REQUIRE(record.prompt_logprobs.size() == 119);
  for (size_t i = 0; i < 119; ++i) {
    REQUIRE(record.prompt_logprobs[i] == static_cast<float>(i + 1));
  }
}

TEST_CASE("Forced preemption every few steps does not change any token") {
  for (int every : {1, 2, 7}) {
    SchedulerConfig config = SmallConfig(2, 64);
    config.preempt_every = every;
    CorePipeline pipeline(config);
    for (SequenceId id = 1; id <= 5; ++id) pipeline.Submit(MakeRequest(id, 30, 40));
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
    REQUIRE(pipeline.core.Snapshot().preemptions > 5);
  }
}

}  // namespace
}  // namespace stagecoach::router
