// Blocks that stages copy to the device while they compute the rows of other sequences.
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

constexpr int32_t kBeside = 2;  // blocks per step
constexpr int kRestored = 6;    // blocks of the prompt in the store

SchedulerConfig BesideConfig(int n_stages = 1) {
  SchedulerConfig config = SmallConfig(n_stages, 64);
  config.kv_scope = "model";
  config.kv_blocks_beside = kBeside;
  return config;
}

// A server that decodes sequence 2, and whose stages have fetched the prompt of sequence 1.
class Decoding {
 public:
  explicit Decoding(const SchedulerConfig& config = BesideConfig(), uint32_t n_decodes = 40)
      : pipeline(config, {}, &store_) {
    CorePipeline before(config, {}, &store_);
    before.Submit(MakeRequest(1, 100, 4));
    before.RunToEnd();
    pipeline.Submit(MakeRequest(2, 20, n_decodes));
    pipeline.Fill();
    pipeline.Turn(2);
    first_ = pipeline.plans.size();
    sink = pipeline.Submit(MakeRequest(1, 100, 4));
    REQUIRE(pipeline.AnswerFetches() == 1);
  }

  // The n-th plan since then.
  const v1::StepPlan& plan(size_t n) const { return pipeline.plans.at(first_ + n); }
  // Plans so many more steps.
  void Plan(size_t n) {
    while (pipeline.plans.size() < first_ + n) {
      if (!pipeline.PlanOne()) pipeline.Turn(1);
    }
  }

 private:
  FakeKvStore store_;
  size_t first_ = 0;

 public:
  CorePipeline pipeline;
  std::shared_ptr<RecordingSink> sink;
};

int CountBeside(const v1::StepPlan& plan) {
  int n = 0;
  for (const v1::KvRestore& restore : plan.restores()) n += restore.beside() ? 1 : 0;
  return n;
}

TEST_CASE("A sequence's blocks come in portions while another one decodes") {
  Decoding server;
  server.Plan(4);
  for (size_t n = 0; n < 3; ++n) {
    CHECK(server.plan(n).restores_size() == kBeside);
    CHECK(CountBeside(server.plan(n)) == kBeside);
    CHECK(server.plan(n).slots_size() == 1);
    CHECK(server.plan(n).registrations().empty());
    CHECK(server.plan(n).forgotten_fetches().empty());
  }
  CHECK(server.plan(3).restores().empty());
  CHECK(server.plan(3).registrations_size() == 1);
  CHECK(server.plan(3).slots_size() == 2);
  CHECK(server.plan(3).forgotten_fetches_size() == 1);
  server.pipeline.RunToEnd();
  server.pipeline.RequireAllAsAlone();
  CHECK(server.sink->record().times.n_cached_tokens == 96);
  CHECK(server.sink->record().times.stored.store() == 96);
}

TEST_CASE("When nobody else has rows any more, the rest comes at once") {
  Decoding server(BesideConfig(), /*n_decodes=*/4);
  server.pipeline.RunToEnd();
  server.pipeline.RequireAllAsAlone();
  int n_restores = 0, n_beside = 0;
  for (const v1::StepPlan& plan : server.pipeline.plans) {
    n_restores += plan.restores_size();
    n_beside += CountBeside(plan);
  }
  CHECK(n_restores == kRestored);
  CHECK(n_beside < kRestored);
}

TEST_CASE("A sequence that ends while its blocks come leaves nothing behind") {
  Decoding server;
  server.Plan(2);
  server.pipeline.core.Cancel(1);
  server.pipeline.RunToEnd();  // all blocks are free again
  CHECK(server.pipeline.n_held_fetches() == 0);
}

TEST_CASE("A loss while a sequence's blocks come lets it load again") {
  for (const bool kv_kept : {false, true}) {
    for (const size_t n_planned : {1, 2, 3, 4}) {
      for (const int n_executed : {0, 1}) {
        Decoding server(BesideConfig(2));
        server.Plan(n_planned);
        server.pipeline.Interrupt(n_executed);
        server.pipeline.Resume(kv_kept);
        server.pipeline.RunToEnd();
        server.pipeline.RequireAllAsAlone();
      }
    }
  }
}

TEST_CASE("Choices that share a fetch do not wait for portions") {
  FakeKvStore store;
  {
    CorePipeline before(BesideConfig(), {}, &store);
    before.Submit(MakeRequest(1, 100, 4));
    before.RunToEnd();
  }
  CorePipeline pipeline(BesideConfig(), {}, &store);
  pipeline.Submit(MakeRequest(2, 20, 40));
  pipeline.Fill();
  pipeline.Turn(2);
  std::vector<std::unique_ptr<SequenceRequest>> choices;
  for (const SequenceId id : {1, 3}) {
    choices.push_back(MakeRequest(id, 100, 4));
    BeginLike(*MakeRequest(1, 100, 1), 100, *choices.back());
    choices.back()->sink = std::make_shared<RecordingSink>();
  }
  pipeline.core.Submit(std::move(choices), std::chrono::steady_clock::now());
  REQUIRE(pipeline.AnswerFetches() == 1);
  pipeline.RunToEnd();
  for (const v1::StepPlan& plan : pipeline.plans) CHECK(CountBeside(plan) == 0);
}

}  // namespace
}  // namespace stagecoach::router
