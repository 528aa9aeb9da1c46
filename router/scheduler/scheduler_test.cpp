// The scheduler's public interface: threads, refusals, drain, loss of the pipeline.
#include "router/scheduler/scheduler.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/testing/core_pipeline.h"
#include "router/scheduler/testing/fake_stage_client.h"

namespace stagecoach::router {
namespace {

// A scheduler on a fake pipeline.
class Fixture {
 public:
  explicit Fixture(const SchedulerConfig& config, const FakeStageClient::Options& options = {})
      : client(config, options) {
    auto started = Scheduler::Start(config, &client);
    REQUIRE(started.ok());
    scheduler = *std::move(started);
  }
  ~Fixture() {
    scheduler.reset();
    CHECK(client.errors() == std::vector<std::string>{});
  }

  std::shared_ptr<RecordingSink> Submit(std::unique_ptr<SequenceRequest> request) {
    auto sink = std::make_shared<RecordingSink>();
    request->sink = sink;
    scheduler->Submit(Alone(std::move(request)));
    return sink;
  }
  // A snapshot is taken after the planning that earlier messages caused.
  SchedulerSnapshot Snapshot() { return scheduler->Snapshot().get(); }

  FakeStageClient client;
  std::unique_ptr<Scheduler> scheduler;
};

TEST_CASE("One more step is in flight than there are stages") {
  for (int n_stages : {1, 2, 4}) {
    for (bool plan_ahead : {true, false}) {
      SchedulerConfig config = SmallConfig(n_stages, 512);
      config.plan_ahead = plan_ahead;
      Fixture fixture(config, {.hold_results = true});
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      for (SequenceId id = 1; id <= 16; ++id) {
        sinks.push_back(fixture.Submit(MakeRequest(id, 64, 12)));
      }
      const auto limit = static_cast<size_t>(plan_ahead ? n_stages + 1 : 1);
      REQUIRE(fixture.Snapshot().in_flight == static_cast<int32_t>(limit));
      REQUIRE(fixture.client.plans().size() == limit);
      fixture.client.ReleaseAll();
      for (auto& sink : sinks) REQUIRE(sink->WaitForEnd().tokens.size() == 12);
      REQUIRE(fixture.client.max_in_flight() == limit);
    }
  }
}

TEST_CASE("Sequences from many threads each get their own tokens") {
  SchedulerConfig config = SmallConfig(2, 64);
  Fixture fixture(config, {.max_delay_us = 20});
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> alone(40), tokens(40);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 10; ++i) {
        const size_t index = t * 10 + i;
        auto request = MakeRequest(index + 1, static_cast<int>(10 + index), 20);
        alone[index] = TokensAlone(*request, 256);
        tokens[index] = fixture.Submit(std::move(request))->WaitForEnd().tokens;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(tokens == alone);
  const SchedulerSnapshot snapshot = fixture.Snapshot();
  REQUIRE(snapshot.generated_tokens == 800);
  REQUIRE(snapshot.prompt_tokens >= 40 * 10 + 39 * 20);
  REQUIRE(snapshot.in_flight_ms > 0);
  REQUIRE(snapshot.kv[0].free_blocks == 64);
}

TEST_CASE("The queue is bounded, and a request's choices are accepted or refused together") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.max_sequences = 1;
  config.max_waiting = 3;
  Fixture fixture(config, {.hold_results = true});
  auto running = fixture.Submit(MakeRequest(1, 10, 5));
  REQUIRE(fixture.Snapshot().running == 1);
  auto first = fixture.Submit(MakeRequest(2, 10, 5));
  const auto submit_choices = [&](SequenceId id, int n) {
    std::vector<std::unique_ptr<SequenceRequest>> requests;
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < n; ++i) {
      requests.push_back(MakeRequest(id + static_cast<SequenceId>(i), 10, 5));
      sinks.push_back(std::make_shared<RecordingSink>());
      requests.back()->sink = sinks.back();
    }
    fixture.scheduler->Submit(std::move(requests));
    return sinks;
  };
  auto never = submit_choices(6, 4);
  auto refused = submit_choices(10, 3);
  auto taken = submit_choices(20, 2);
  auto late = fixture.Submit(MakeRequest(30, 10, 5));
  REQUIRE(fixture.Snapshot().waiting == 3);
  for (auto& sink : never) {
    REQUIRE(sink->record().error.code() == absl::StatusCode::kInvalidArgument);
  }
  for (auto& sink : refused) {
    REQUIRE(sink->record().error.code() == absl::StatusCode::kResourceExhausted);
  }
  REQUIRE(late->record().error.code() == absl::StatusCode::kResourceExhausted);
  fixture.client.ReleaseAll();
  for (auto& sink : taken) REQUIRE(sink->WaitForEnd().error.ok());
  REQUIRE(first->WaitForEnd().error.ok());
  REQUIRE(running->WaitForEnd().error.ok());
}

TEST_CASE("The queue is also bounded by the prompt tokens that wait") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.max_sequences = 1;
  config.max_waiting_tokens = 100;
  Fixture fixture(config, {.hold_results = true});
  auto running = fixture.Submit(MakeRequest(1, 200, 5));
  REQUIRE(fixture.Snapshot().running == 1);
  auto first = fixture.Submit(MakeRequest(2, 150, 5));  // above the limit, but nothing else waits
  auto refused = fixture.Submit(MakeRequest(3, 1, 5));
  REQUIRE(fixture.Snapshot().waiting == 1);
  REQUIRE(refused->record().error.code() == absl::StatusCode::kResourceExhausted);
  fixture.scheduler->Cancel(2);
  auto second = fixture.Submit(MakeRequest(4, 60, 5));
  auto third = fixture.Submit(MakeRequest(5, 40, 5));
  auto late = fixture.Submit(MakeRequest(6, 1, 5));
  REQUIRE(fixture.Snapshot().waiting == 2);
  REQUIRE(late->record().error.code() == absl::StatusCode::kResourceExhausted);
  fixture.client.ReleaseAll();
  for (auto& sink : {running, second, third}) REQUIRE(sink->WaitForEnd().error.ok());
}

TEST_CASE("A request that can never be served is INVALID_ARGUMENT") {
  Fixture fixture(SmallConfig(1, 64));
  for (auto [n_prompt, max_tokens] : {std::pair{0, 5}, {256, 5}, {10, 0}}) {
    auto sink = fixture.Submit(MakeRequest(1, n_prompt, max_tokens));
    REQUIRE(sink->WaitForEnd().error.code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("Drain refuses waiting requests, except choices of a request that has started") {
  SchedulerConfig config = SmallConfig(1, 64);
  config.max_sequences = 1;
  Fixture fixture(config, {.hold_results = true});
  std::vector<std::unique_ptr<SequenceRequest>> choices;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id : {1, 2}) {
    choices.push_back(MakeRequest(id, 10, 5));
    sinks.push_back(std::make_shared<RecordingSink>());
    choices.back()->sink = sinks.back();
  }
  fixture.scheduler->Submit(std::move(choices));
  auto waiting = fixture.Submit(MakeRequest(3, 10, 5));
  REQUIRE(fixture.Snapshot().running == 1);
  std::future<void> drained = fixture.scheduler->Drain();
  fixture.client.Release(1);
  REQUIRE(waiting->WaitForEnd().error.code() == absl::StatusCode::kUnavailable);
  REQUIRE(fixture.Snapshot().waiting == 1);
  fixture.client.ReleaseAll();
  drained.wait();
  for (auto& sink : sinks) REQUIRE(sink->WaitForEnd().error.ok());
}

TEST_CASE("Drain refuses new sequences and waits for the last running one") {
  Fixture fixture(SmallConfig(2, 64), {.hold_results = true});
  auto sink = fixture.Submit(MakeRequest(1, 10, 20));
  std::future<void> drained = fixture.scheduler->Drain();
  auto late = fixture.Submit(MakeRequest(2, 10, 20));
  REQUIRE(late->WaitForEnd().error.code() == absl::StatusCode::kUnavailable);
  REQUIRE(drained.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  fixture.client.ReleaseAll();
  drained.get();
  REQUIRE(sink->record().finish == Finish::kLength);
  fixture.scheduler->Drain().get();
}

TEST_CASE("When a stage is lost, all current and later sequences get the reason") {
  SchedulerConfig config = SmallConfig(2, 64);
  config.max_sequences = 2;
  Fixture fixture(config, {.hold_results = true});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  const auto call = std::make_shared<ClientCall>();
  for (SequenceId id = 1; id <= 5; ++id) {
    auto request = MakeRequest(id, 40, 50);
    request->call = call;
    sinks.push_back(fixture.Submit(std::move(request)));
  }
  fixture.client.Release(6);
  sinks[0]->WaitForTokens(2);
  std::future<void> drained = fixture.scheduler->Drain();
  fixture.client.Lose(absl::InternalError("stage 1 is lost"));
  for (auto& sink : sinks) {
    const RecordingSink::Record record = sink->WaitForEnd();
    REQUIRE(record.error.code() == absl::StatusCode::kUnavailable);
    REQUIRE(record.error.message() == "stage 1 is lost");
    REQUIRE(record.n_after_end == 0);
  }
  drained.get();
  auto late = fixture.Submit(MakeRequest(9, 10, 5));
  REQUIRE(late->WaitForEnd().error.code() == absl::StatusCode::kUnavailable);
  const SchedulerSnapshot snapshot = fixture.Snapshot();
  REQUIRE(snapshot.down);
  REQUIRE(snapshot.in_flight == 0);
  REQUIRE(snapshot.kv[0].free_blocks == snapshot.kv[0].total_blocks);
}

TEST_CASE("When the scheduler ends, its sequences end") {
  FakeStageClient client(SmallConfig(1, 64), {.hold_results = true});
  auto scheduler = Scheduler::Start(SmallConfig(1, 64), &client);
  REQUIRE(scheduler.ok());
  auto sink = std::make_shared<RecordingSink>();
  auto request = MakeRequest(1, 10, 50);
  request->sink = sink;
  (*scheduler)->Submit(Alone(std::move(request)));
  scheduler->reset();
  REQUIRE(sink->record().error.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("Calls to a stopped scheduler have no effect") {
  Fixture fixture(SmallConfig(1, 64), {.hold_results = true});
  auto running = fixture.Submit(MakeRequest(1, 10, 5));
  fixture.scheduler->Stop();
  REQUIRE(running->record().error.code() == absl::StatusCode::kUnavailable);
  fixture.scheduler->Cancel(1);
  auto late = fixture.Submit(MakeRequest(2, 10, 5));
  fixture.scheduler->Stop();
  REQUIRE(late.use_count() == 1);
}

TEST_CASE("A failed start gives the reason") {
  FakeStageClient client(SmallConfig(1, 64), {.start_status = absl::UnavailableError("no stage")});
  REQUIRE(Scheduler::Start(SmallConfig(1, 64), &client).status().message() == "no stage");
  const absl::Status small = Scheduler::Start(SmallConfig(1, 15), &client).status();
  REQUIRE(small.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(small.message().find("needs 16") != absl::string_view::npos);
  SchedulerConfig config = SmallConfig(1, 64);
  config.max_sequences = 0;
  REQUIRE(Scheduler::Start(config, &client).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("If the last stage cannot continue a sequence, only this sequence ends") {
  SchedulerCore core(SmallConfig(1, 64));
  StrictStage stage(SmallConfig(1, 64));
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id : {1, 2}) {
    auto request = MakeRequest(id, 10, 50);
    request->sampling.mutable_grammar()->add_end_ids(0);  // only a grammar can fail
    sinks.push_back(std::make_shared<RecordingSink>());
    request->sink = sinks.back();
    core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
  }
  v1::StepResult result = stage.Apply(*core.NextPlan());
  result.mutable_slots(0)->set_failure("too many states");
  core.Result(result);
  const absl::Status error = sinks[0]->record().error;
  REQUIRE(error.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(error.message() == "sampling.grammar: too many states");
  REQUIRE(sinks[0]->record().tokens.empty());
  REQUIRE(sinks[1]->record().tokens.size() == 1);
  REQUIRE(core.Snapshot().running == 1);
}

TEST_CASE("An unexpected result also ends the client's streams") {
  Fixture fixture(SmallConfig(1, 64), {.wrong_step = 3});
  const auto sink = fixture.Submit(MakeRequest(1, 10, 50));
  sink->WaitForEnd();
  CHECK(absl::IsUnavailable(sink->record().error));
  CHECK(fixture.Snapshot().down);
  CHECK(fixture.client.is_lost());
}

TEST_CASE("While prompts fill the steps, the client gets as many steps as it expects") {
  SchedulerConfig config = SmallConfig(2, 512);
  config.break_even_rows = 4;
  Fixture fixture(config, {.hold_results = true});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 16; ++id) sinks.push_back(fixture.Submit(MakeRequest(id, 200, 4)));
  CHECK(fixture.Snapshot().in_flight == 4);
  fixture.client.ReleaseAll();
  for (const auto& sink : sinks) sink->WaitForEnd();
  CHECK(fixture.client.max_in_flight() == 4);
}

TEST_CASE("An unexpected result takes down the pipeline, not the process") {
  const auto broken = [](auto change) {
    SchedulerCore core(SmallConfig(1, 64));
    StrictStage stage(SmallConfig(1, 64));
    auto sink = std::make_shared<RecordingSink>();
    auto request = MakeRequest(1, 10, 50);
    request->sink = sink;
    request->sampling.set_n_logprobs(1);
    request->sampling.set_n_prompt_logprobs(1);
    core.Submit(Alone(std::move(request)), std::chrono::steady_clock::now());
    v1::StepResult result = stage.Apply(*core.NextPlan());
    change(result);
    core.Result(result);
    REQUIRE(core.Snapshot().down);
    REQUIRE(sink->record().error.code() == absl::StatusCode::kUnavailable);
  };
  broken([](v1::StepResult& result) { result.set_step(2); });
  broken([](v1::StepResult& result) { result.set_epoch(2); });
  broken([](v1::StepResult& result) { result.clear_slots(); });
  broken([](v1::StepResult& result) { result.mutable_slots(0)->set_slot(9); });
  broken([](v1::StepResult& result) { *result.add_slots() = result.slots(0); });
  // Output that was not requested.
  const auto broken_slot = [&](auto change) {
    broken([&](v1::StepResult& result) { change(*result.mutable_slots(0)); });
  };
  broken_slot([](v1::SlotResult& slot) { slot.clear_logprobs(); });
  broken_slot([](v1::SlotResult& slot) { slot.mutable_logprobs()->add_top_ids(1); });
  broken_slot([](v1::SlotResult& slot) {
    for (int i = 0; i < 2; ++i) {
      slot.mutable_logprobs()->add_top_ids(i);
      slot.mutable_logprobs()->add_top(-1);
    }
  });
  broken_slot([](v1::SlotResult& slot) { slot.mutable_logprobs()->set_chosen(std::nanf("")); });
  broken_slot([](v1::SlotResult& slot) { slot.mutable_prompt_logprobs(0)->add_top_ids(1); });
  broken_slot([](v1::SlotResult& slot) { slot.set_failure("a grammar that nobody gave"); });
}

}  // namespace
}  // namespace stagecoach::router
