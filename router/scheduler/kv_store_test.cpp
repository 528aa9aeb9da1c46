// How sequences load KV blocks that another server, or this one earlier, has saved to the store.
#include "absl/strings/match.h"
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

v1::KvFetched AnswerOf(uint64_t id, uint32_t n_blocks) {
  v1::KvFetched fetched;
  fetched.set_id(id);
  fetched.set_n_blocks(n_blocks);
  return fetched;
}

const absl::Status kStageLost = absl::UnavailableError("stage 1 is lost");

SchedulerConfig StoreConfig(int n_stages, uint64_t n_blocks) {
  SchedulerConfig config = SmallConfig(n_stages, n_blocks);
  config.kv_scope = "model";
  return config;
}

// A server whose store another one has filled with the prompts of `requests`.
class Restarted {
 public:
  Restarted(const SchedulerConfig& config, std::vector<std::unique_ptr<SequenceRequest>> requests,
            SchedulerHooks hooks = {})
      : pipeline(config, std::move(hooks), &store_) {
    CorePipeline before(config, {}, &store_);
    for (auto& request : requests) before.Submit(std::move(request));
    before.RunToEnd();
    before.RequireAllAsAlone();
  }
  explicit Restarted(const SchedulerConfig& config, SchedulerHooks hooks = {})
      : Restarted(config, Alone(MakeRequest(1, 100, 4)), std::move(hooks)) {}

  SchedulerSnapshot snapshot() const { return pipeline.core.Snapshot(); }

 private:
  FakeKvStore store_;

 public:
  CorePipeline pipeline;
};

// Everything that plans save, restore and forget.
struct Counts {
  explicit Counts(const CorePipeline& pipeline) {
    for (const v1::StepPlan& plan : pipeline.plans) {
      n_saves += plan.saves_size();
      n_restores += plan.restores_size();
      n_forgotten += plan.forgotten_fetches_size();
    }
  }
  int n_saves = 0, n_restores = 0, n_forgotten = 0;
};

TEST_CASE("What one server has computed, another one restores") {
  Restarted again(StoreConfig(1, 64));
  CorePipeline& pipeline = again.pipeline;
  const auto sink = pipeline.Submit(MakeRequest(1, 100, 4));
  CHECK_FALSE(pipeline.PlanOne());
  CHECK(again.snapshot().loading == 1);
  CHECK(again.snapshot().waiting == 1);
  REQUIRE(pipeline.AnswerFetches() == 1);
  CHECK(again.snapshot().loading == 0);
  REQUIRE(pipeline.PlanOne());
  const v1::StepPlan& plan = pipeline.plans.front();
  REQUIRE(plan.restores_size() == 6);
  CHECK(plan.slots(0).start() == 96);
  CHECK(plan.slots(0).new_blocks(0).ids_size() == 7);
  CHECK(plan.slots(0).new_blocks(0).ids(5) == plan.restores(5).blocks(0));
  CHECK(plan.forgotten_fetches_size() == 1);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(sink->record().times.n_cached_tokens == 96);
  CHECK(sink->record().times.stored.store() == 96);
  CHECK(again.snapshot().kv_store_hits == 96);
  CHECK(again.snapshot().prefix_hits == 0);
  CHECK(again.snapshot().prompt_tokens == 4);
  CHECK(again.snapshot().kv_saves == 0);
  CHECK(pipeline.n_held_fetches() == 0);
}

TEST_CASE("Saves go out with the next plan, or in one without rows when nothing is left to do") {
  FakeKvStore store;
  CorePipeline pipeline(StoreConfig(1, 64), {}, &store);
  pipeline.Submit(MakeRequest(1, 50, 1));
  pipeline.Submit(MakeRequest(2, 20, 20));
  REQUIRE(pipeline.AnswerFetches() == 0);  // too short
  REQUIRE(pipeline.PlanOne());
  CHECK(pipeline.plans[0].saves().empty());
  REQUIRE(pipeline.PlanOne());
  CHECK(pipeline.plans[1].saves_size() == 4);
  pipeline.RunToEnd();
  CHECK(pipeline.plans.back().slots().empty());
  CHECK(store.size() == 5);
  CHECK(pipeline.core.Snapshot().kv_saves == 5);
}

TEST_CASE("The plan that overwrites a block saves it before") {
  FakeKvStore store;
  SchedulerConfig config = StoreConfig(1, 16);
  config.max_batched_tokens = config.max_prefill_chunk = 256;
  CorePipeline pipeline(config, {}, &store);
  pipeline.Submit(MakeRequest(1, 250, 4));
  REQUIRE(pipeline.AnswerFetches() == 1);
  REQUIRE(pipeline.PlanOne());
  pipeline.core.Cancel(1);
  pipeline.Submit(MakeRequest(2, 250, 4));
  REQUIRE(pipeline.AnswerFetches() == 1);
  pipeline.Execute();
  REQUIRE(pipeline.PlanOne());
  const v1::StepPlan& plan = pipeline.plans.back();
  REQUIRE(plan.saves_size() == 15);
  CHECK(plan.slots(0).new_blocks(0).ids_size() == 16);
  while (pipeline.HasInFlight()) pipeline.Turn(1);
  CHECK(store.size() == 30);
}

TEST_CASE("A step that may not have happened saves nothing") {
  FakeKvStore store;
  CorePipeline pipeline(StoreConfig(1, 64), {}, &store);
  pipeline.Submit(MakeRequest(1, 60, 1));
  REQUIRE(pipeline.PlanOne());
  pipeline.Interrupt();
  pipeline.Resume(/*kv_kept=*/true);
  REQUIRE(pipeline.PlanOne());
  CHECK(pipeline.plans.back().saves().empty());
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(store.size() == 3);  // computed again
}

TEST_CASE("The choices of a request wait for one fetch, and share what it restores") {
  Restarted again(StoreConfig(1, 64));
  std::vector<std::unique_ptr<SequenceRequest>> choices;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 3; ++id) {
    choices.push_back(MakeRequest(id, 100, 4));
    BeginLike(*MakeRequest(1, 100, 1), 100, *choices.back());
    sinks.push_back(std::make_shared<RecordingSink>());
    choices.back()->sink = sinks.back();
  }
  CorePipeline& pipeline = again.pipeline;
  pipeline.core.Submit(std::move(choices), std::chrono::steady_clock::now());
  CHECK(again.snapshot().loading == 3);
  CHECK(pipeline.AnswerFetches() == 1);
  pipeline.RunToEnd();
  for (const auto& sink : sinks) CHECK(sink->record().times.n_cached_tokens == 96);
  CHECK(sinks[0]->record().times.stored.store() == 96);
  CHECK(sinks[1]->record().times.stored.store() == 0);
  CHECK(Counts(pipeline).n_restores == 6);
  CHECK(Counts(pipeline).n_forgotten == 1);
}

TEST_CASE("Prompts with logprobs and sequences with a past are queued at once") {
  Restarted again(StoreConfig(1, 64));
  auto with_logprobs = MakeRequest(1, 100, 4);
  with_logprobs->sampling.set_n_prompt_logprobs(0);
  again.pipeline.Submit(std::move(with_logprobs));
  auto moved = MakeRequest(2, 100, 4);
  moved->past.emplace();
  again.pipeline.Submit(std::move(moved));
  CHECK(again.snapshot().loading == 0);
  CHECK(again.pipeline.core.TakeFetches().empty());
  again.pipeline.RunToEnd();
  again.pipeline.RequireAllAsAlone();
}

TEST_CASE("A sequence of which the store has nothing computes everything") {
  Restarted again(StoreConfig(2, 64));
  const auto sink = again.pipeline.Submit(MakeRequest(2, 100, 4));
  again.pipeline.RunToEnd();
  again.pipeline.RequireAllAsAlone();
  CHECK(sink->record().times.stored.store() == 0);
  CHECK(Counts(again.pipeline).n_forgotten == 1);
  CHECK(Counts(again.pipeline).n_saves == 6);
  CHECK(again.pipeline.n_held_fetches() == 0);
}

TEST_CASE("What is cancelled while it loads is forgotten by the stages, after their answer") {
  Restarted again(StoreConfig(1, 64));
  CorePipeline& pipeline = again.pipeline;
  pipeline.core.Submit(
      [] {
        auto requests = Alone(MakeRequest(1, 100, 4));
        requests[0]->sink = std::make_shared<RecordingSink>();
        return requests;
      }(),
      std::chrono::steady_clock::now());
  const auto fetches = pipeline.core.TakeFetches();
  REQUIRE(fetches.size() == 1);
  pipeline.core.Cancel(1);
  REQUIRE(pipeline.core.empty());
  CHECK_FALSE(pipeline.PlanOne());
  pipeline.Answer(*fetches[0]);
  REQUIRE(pipeline.PlanOne());
  CHECK(pipeline.plans.back().forgotten_fetches(0) == fetches[0]->id());
  pipeline.RunToEnd();
  CHECK(pipeline.plans.size() == 1);
  CHECK(pipeline.n_held_fetches() == 0);
}

TEST_CASE("A loss ends all loads, and their sequences compute") {
  for (const bool kv_kept : {false, true}) {
    Restarted again(StoreConfig(2, 64));
    CorePipeline& pipeline = again.pipeline;
    const auto loading = pipeline.Submit(MakeRequest(1, 100, 4));
    const auto fetches = pipeline.core.TakeFetches();
    pipeline.Interrupt();
    CHECK(again.snapshot().loading == 0);
    CHECK(again.snapshot().waiting == 1);
    const auto meanwhile = pipeline.Submit(MakeRequest(2, 100, 4));
    CHECK(again.snapshot().loading == 0);
    pipeline.Resume(kv_kept);
    pipeline.core.Fetched(AnswerOf(fetches[0]->id(), 6));  // late
    const auto later = pipeline.Submit(MakeRequest(3, 100, 4));
    CHECK(again.snapshot().loading == 1);
    pipeline.RunToEnd();
    pipeline.RequireAllAsAlone();
    CHECK(loading->record().times.stored.store() == 0);
    CHECK(Counts(pipeline).n_restores == 0);
  }
}

TEST_CASE("After a loss of all blocks, sequences load what they have saved") {
  FakeKvStore store;
  CorePipeline pipeline(StoreConfig(2, 64), {}, &store);
  const auto sink = pipeline.Submit(MakeRequest(1, 100, 40));
  pipeline.AnswerFetches();
  pipeline.Fill();
  pipeline.Turn(30);
  pipeline.Interrupt();
  pipeline.Resume(/*kv_kept=*/false);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(Counts(pipeline).n_restores >= 6);
  // The client's prompt was computed.
  CHECK(sink->record().times.n_cached_tokens == 0);
  CHECK(sink->record().times.stored.store() == 0);
}

TEST_CASE("A preempted sequence loads the blocks that others have overwritten") {
  FakeKvStore store;
  CorePipeline pipeline(StoreConfig(1, 24), {}, &store);
  const auto one = pipeline.Submit(MakeRequest(1, 100, 150));
  const auto two = pipeline.Submit(MakeRequest(2, 100, 150));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(one->record().times.preemptions + two->record().times.preemptions > 0);
  CHECK(Counts(pipeline).n_restores > 0);
  CHECK(one->record().times.stored.store() + two->record().times.stored.store() == 0);
}

TEST_CASE("A fetch that came before a loss is not used after it: the sequence loads again") {
  Restarted again(StoreConfig(2, 64));
  again.pipeline.Submit(MakeRequest(1, 100, 4));
  again.pipeline.AnswerFetches();
  again.pipeline.Interrupt();
  again.pipeline.Resume(/*kv_kept=*/true);
  again.pipeline.RunToEnd();
  again.pipeline.RequireAllAsAlone();
  CHECK(Counts(again.pipeline).n_restores == 6);
  CHECK(Counts(again.pipeline).n_forgotten == 1);
  CHECK(again.pipeline.n_held_fetches() == 0);
}

TEST_CASE("If the step that restores is lost, the sequence loads again") {
  for (const int n_executed : {0, 1}) {
    Restarted again(StoreConfig(2, 64));
    const auto sink = again.pipeline.Submit(MakeRequest(1, 100, 4));
    again.pipeline.AnswerFetches();
    REQUIRE(again.pipeline.PlanOne());
    again.pipeline.Interrupt(n_executed);
    again.pipeline.Resume(/*kv_kept=*/true);
    again.pipeline.RunToEnd();
    again.pipeline.RequireAllAsAlone();
    CHECK(again.snapshot().prompt_tokens == 4);
  }
}

TEST_CASE("After the step that restores, a loss takes nothing if the KV cache is kept") {
  Restarted again(StoreConfig(1, 64));
  again.pipeline.Submit(MakeRequest(1, 100, 20));
  again.pipeline.AnswerFetches();
  again.pipeline.Fill();
  again.pipeline.Turn(3);
  again.pipeline.Interrupt();
  again.pipeline.Resume(/*kv_kept=*/true);
  again.pipeline.RunToEnd();
  again.pipeline.RequireAllAsAlone();
  CHECK(again.snapshot().prompt_tokens == 4);
}

TEST_CASE("What loads counts as waiting when the queue is full, and can be evicted") {
  SchedulerConfig config = StoreConfig(1, 64);
  config.max_waiting = 2;
  Restarted again(config);
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 3; ++id) {
    auto request = MakeRequest(id, 100, 4);
    request->account.tenant = id < 3 ? "a" : "b";
    sinks.push_back(again.pipeline.Submit(std::move(request)));
  }
  CHECK(again.snapshot().loading == 2);
  CHECK(again.snapshot().evicted == 1);
  CHECK(absl::IsResourceExhausted(sinks[1]->record().error));
  const auto refused = again.pipeline.Submit(MakeRequest(4, 10, 4));
  CHECK(absl::IsResourceExhausted(refused->record().error));
  again.pipeline.RunToEnd();
  CHECK(sinks[0]->record().finish == Finish::kLength);
  CHECK(sinks[2]->record().finish == Finish::kLength);
}

TEST_CASE("A drain ends what loads after the next plan") {
  Restarted again(StoreConfig(1, 64));
  const auto running = again.pipeline.Submit(MakeRequest(2, 20, 4));
  again.pipeline.Fill();
  const auto loading = again.pipeline.Submit(MakeRequest(1, 100, 4));
  const auto fetches = again.pipeline.core.TakeFetches();
  again.pipeline.core.Drain(absl::UnavailableError("the server is shutting down"));
  again.pipeline.Turn(1);
  CHECK(absl::IsUnavailable(loading->record().error));
  again.pipeline.Answer(*fetches[0]);
  again.pipeline.RunToEnd();
  CHECK(running->record().finish == Finish::kLength);
  CHECK(again.pipeline.n_held_fetches() == 0);
}

TEST_CASE("What loads when the pipeline is lost goes on elsewhere") {
  CorePipeline other(SmallConfig(1, 64));
  SchedulerHooks hooks{.on_state = nullptr, .may_move = [] { return true; }, .move = {}};
  hooks.move = [&](std::vector<std::unique_ptr<SequenceRequest>> requests) {
    other.core.Submit(std::move(requests), std::chrono::steady_clock::now());
  };
  for (const bool for_good : {false, true}) {
    Restarted again(StoreConfig(1, 64), hooks);
    const auto sink = again.pipeline.Submit(MakeRequest(1, 100, 4));
    if (for_good) {
      again.pipeline.core.Down(kStageLost);
    } else {
      again.pipeline.core.Interrupt(kStageLost);
    }
    CHECK_FALSE(again.pipeline.PlanOne());
    CHECK(again.pipeline.core.empty());
    other.RunToEnd();
    CHECK(sink->record().finish == Finish::kLength);
  }
}

TEST_CASE("A pipeline that is lost for good ends what loads") {
  Restarted again(StoreConfig(1, 64));
  const auto sink = again.pipeline.Submit(MakeRequest(1, 100, 4));
  again.pipeline.core.Down(kStageLost);
  CHECK(absl::IsUnavailable(sink->record().error));
  CHECK(again.pipeline.core.TakeFetches().empty());
}

TEST_CASE("Waiting prompts count without what the stages hold for them") {
  Restarted again(StoreConfig(2, 64));
  again.pipeline.Submit(MakeRequest(1, 100, 4));
  const WaitingQueue& queue = again.pipeline.core.state().waiting();
  CHECK(queue.n_to_prefill() == 0);
  again.pipeline.AnswerFetches();
  CHECK(queue.n_to_prefill() == 4);
}

TEST_CASE("A KV store needs the prefix cache") {
  SchedulerConfig config = StoreConfig(1, 64);
  config.prefix_cache = false;
  CHECK(absl::StrContains(ValidateConfig(config).message(), "needs the prefix cache"));
}

}  // namespace
}  // namespace stagecoach::router
