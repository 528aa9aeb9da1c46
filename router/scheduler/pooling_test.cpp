// Sequences that get numbers in place of tokens.
#include <cmath>

#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

using What = v1::SlotPooling;

std::unique_ptr<SequenceRequest> Pooled(SequenceId id, int n_prompt, What::What what) {
  auto request = MakeRequest(id, n_prompt, 1);
  request->sampling.mutable_pooling()->set_what(what);
  if (what == What::LOGITS) {
    request->sampling.mutable_pooling()->add_logit_ids(3);
    request->sampling.mutable_pooling()->add_logit_ids(5);
  }
  return request;
}

TEST_CASE("values come once, in place of tokens, beside sequences that generate") {
  for (int n_stages : {1, 2, 4}) {
    SchedulerConfig config = SmallConfig(n_stages, 64);
    config.max_prefill_chunk = 24;
    CorePipeline pipeline(config);
    std::vector<std::pair<std::shared_ptr<RecordingSink>, std::vector<float>>> expected;
    for (SequenceId id = 1; id <= 12; ++id) {
      const auto what = static_cast<What::What>(id % 3);
      auto request = Pooled(id, 60 + static_cast<int>(id), what);
      std::vector<float> values = PooledAlone(*request);
      expected.emplace_back(pipeline.Submit(std::move(request)), std::move(values));
    }
    const auto writer = pipeline.Submit(MakeRequest(20, 50, 30));
    pipeline.RunToEnd();
    for (const auto& [sink, values] : expected) {
      CHECK(sink->record().values == values);
      CHECK(sink->record().tokens.empty());
      CHECK(sink->record().finish == Finish::kLength);
      CHECK(sink->record().n_after_end == 0);
    }
    CHECK(writer->record().tokens.size() == 30);
    CHECK(pipeline.core.Snapshot().generated_tokens == 30);
  }
}

TEST_CASE("the last token may use remembered blocks, a mean may not") {
  for (const auto what : {What::LAST_HIDDEN, What::LOGITS, What::MEAN_HIDDEN}) {
    CorePipeline pipeline(SmallConfig(1, 64));
    pipeline.Submit(Pooled(1, 100, what));
    pipeline.RunToEnd();
    auto again = Pooled(2, 100, what);
    BeginLike(*MakeRequest(1, 100, 1), 100, *again);
    const std::vector<float> values = PooledAlone(*again);
    const auto sink = pipeline.Submit(std::move(again));
    pipeline.RunToEnd();
    CHECK(sink->record().values == values);
    CHECK(sink->record().times.n_cached_tokens == (what == What::MEAN_HIDDEN ? 0 : 96));
  }
}

TEST_CASE("after a loss, a mean begins again, also if the stages have kept their KV cache") {
  for (const bool kv_kept : {false, true}) {
    SchedulerConfig config = SmallConfig(2, 64);
    config.max_prefill_chunk = 24;
    CorePipeline pipeline(config);
    auto request = Pooled(1, 200, What::MEAN_HIDDEN);
    const std::vector<float> values = PooledAlone(*request);
    const auto sink = pipeline.Submit(std::move(request));
    pipeline.Fill();
    pipeline.Turn(2);
    const size_t n_plans = pipeline.plans.size();
    pipeline.Interrupt(1);
    pipeline.Resume(kv_kept);
    pipeline.RunToEnd();
    CHECK(sink->record().values == values);
    REQUIRE(pipeline.plans[n_plans].slots_size() == 1);
    CHECK(pipeline.plans[n_plans].slots(0).start() == 0);
  }
}

TEST_CASE("a preempted mean begins again") {
  SchedulerConfig config = SmallConfig(2, 30);
  config.max_prefill_chunk = 30;
  config.max_sequences = 2;
  CorePipeline pipeline(config);
  std::vector<std::pair<std::shared_ptr<RecordingSink>, std::vector<float>>> expected;
  for (SequenceId id = 1; id <= 2; ++id) {
    auto request = Pooled(id, 220, What::MEAN_HIDDEN);
    request->priority = 1;
    std::vector<float> values = PooledAlone(*request);
    expected.emplace_back(pipeline.Submit(std::move(request)), std::move(values));
  }
  pipeline.Fill();
  pipeline.Turn(3);
  pipeline.Submit(MakeRequest(3, 150, 20));
  pipeline.RunToEnd();
  uint32_t n_preemptions = 0;
  for (const auto& [sink, values] : expected) {
    CHECK(sink->record().values == values);
    n_preemptions += sink->record().times.preemptions;
  }
  CHECK(n_preemptions >= 1);
}

// Changes the only result of a sequence.
std::shared_ptr<RecordingSink> WithResult(SchedulerCore& core, What::What what, auto change) {
  StrictStage stage(SmallConfig(1, 64));
  auto sink = std::make_shared<RecordingSink>();
  auto request = Pooled(1, 10, what);
  request->sink = sink;
  core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
  v1::StepResult result = stage.Apply(*core.NextPlan());
  change(*result.mutable_slots(0));
  core.Result(result);
  return sink;
}

TEST_CASE("a worker of an older release fails the sequence, a broken one the pipeline") {
  SchedulerCore old(SmallConfig(1, 64));
  const auto sink = WithResult(old, What::LAST_HIDDEN, [](auto& slot) { slot.clear_values(); });
  CHECK(absl::IsUnavailable(sink->record().error));
  CHECK_FALSE(old.Snapshot().down);
  SchedulerCore broken(SmallConfig(1, 64));
  WithResult(broken, What::LAST_HIDDEN, [](auto& slot) { slot.set_values(1, std::nanf("")); });
  CHECK(broken.Snapshot().down);
  SchedulerCore more(SmallConfig(1, 64));
  WithResult(more, What::LOGITS, [](auto& slot) { slot.add_values(1); });
  CHECK(more.Snapshot().down);
}

}  // namespace
}  // namespace stagecoach::router
