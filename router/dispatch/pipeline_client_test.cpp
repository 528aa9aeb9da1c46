// Runs against fake stages on real sockets.
#include "router/dispatch/pipeline_client.h"

#include <algorithm>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/mutex.h"
#include "router/dispatch/stage_loss.h"
#include "router/dispatch/testing/fake_stage.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {
namespace {

constexpr uint64_t kEpoch = 77;

v1::Lease TestLease() {
  v1::Lease lease;
  lease.set_epoch(kEpoch);
  lease.set_holder("router");
  return lease;
}

// Records the callbacks of a client.
class Events {
 public:
  StageClientEvents Callbacks() {
    return {.on_result =
                [this](std::unique_ptr<v1::StepResult> result) {
                  MutexLock lock(mutex_);
                  steps_.push_back(result->step());
                  changed_.notify_all();
                },
            .on_fetched =
                [this](const v1::KvFetched& fetched) {
                  MutexLock lock(mutex_);
                  fetched_.push_back({fetched.id(), fetched.n_blocks()});
                  changed_.notify_all();
                },
            .on_down =
                [this](absl::Status status) {
                  MutexLock lock(mutex_);
                  downs_.push_back(std::move(status));
                  changed_.notify_all();
                }};
  }
  std::vector<uint64_t> WaitForSteps(size_t n) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return steps_.size() >= n; });
    return steps_;
  }
  using Fetched = std::vector<std::pair<uint64_t, uint32_t>>;  // ids and numbers of blocks
  Fetched WaitForFetched(size_t n) {
    MutexLock lock(mutex_);
    changed_.wait(lock,
                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return fetched_.size() >= n; });
    return fetched_;
  }
  std::string WaitForDown() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !downs_.empty(); });
    CHECK(absl::IsUnavailable(downs_[0]));
    return std::string(downs_[0].message());
  }
  size_t n_downs() {
    MutexLock lock(mutex_);
    return downs_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint64_t> steps_ ABSL_GUARDED_BY(mutex_);
  Fetched fetched_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> downs_ ABSL_GUARDED_BY(mutex_);
};

std::unique_ptr<v1::StepPlan> Plan(uint64_t step) {
  auto plan = std::make_unique<v1::StepPlan>();
  plan->set_epoch(kEpoch);
  plan->set_step(step);
  return plan;
}

std::unique_ptr<v1::KvFetch> FetchOf(uint64_t id, int n_blocks) {
  auto fetch = std::make_unique<v1::KvFetch>();
  fetch->set_id(id);
  for (int i = 0; i < n_blocks; ++i) fetch->add_keys(std::string(16, static_cast<char>(i)));
  return fetch;
}

std::vector<uint64_t> UpTo(uint64_t n) {
  std::vector<uint64_t> steps;
  for (uint64_t step = 1; step <= n; ++step) steps.push_back(step);
  return steps;
}

TEST_CASE("plans reach the first stage, and results come from the last stage in order") {
  FakeStage last;
  FakeStage middle;
  FakeStage first({.on_plan = [&](const v1::StepPlan& plan) {
    last.SendResult(plan.epoch(), plan.step());
    return grpc::Status::OK;
  }});
  Events events;
  const auto client =
      MakePipelineClient({first.address(), middle.address(), last.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  for (uint64_t step = 1; step <= 500; ++step) client->Send(Plan(step));
  CHECK(events.WaitForSteps(500) == UpTo(500));
  CHECK(first.steps() == UpTo(500));
  CHECK(middle.steps().empty());
  client->Stop();
  CHECK(events.n_downs() == 0);
}

TEST_CASE("a single stage is both first and last") {
  FakeStage* self = nullptr;
  FakeStage only({.on_plan = [&](const v1::StepPlan& plan) {
    self->SendResult(plan.epoch(), plan.step());
    return grpc::Status::OK;
  }});
  self = &only;
  Events events;
  const auto client = MakePipelineClient({only.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  client->Send(Plan(1));
  CHECK(events.WaitForSteps(1) == UpTo(1));
}

TEST_CASE("a fetch reaches every stage, and the stage with the fewest blocks decides") {
  FakeStage stages[] = {
      FakeStage({.on_fetch = [](const auto& fetch) { return fetch.keys_size(); }}),
      FakeStage({.on_fetch = [](const auto& fetch) { return fetch.id() == 8 ? 0 : 3; }}),
      FakeStage({.on_fetch = [](const auto& fetch) { return fetch.keys_size() - 1; }})};
  Events events;
  const auto client = MakePipelineClient(
      {stages[0].address(), stages[1].address(), stages[2].address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  client->Fetch(kEpoch - 1, FetchOf(6, 5));  // of an epoch that is over
  client->Send(Plan(1));
  client->Fetch(kEpoch, FetchOf(7, 5));
  CHECK(events.WaitForFetched(1) == Events::Fetched{{7, 3}});
  client->Fetch(kEpoch, FetchOf(8, 5));
  client->Fetch(kEpoch, FetchOf(9, 2));
  auto fetched = events.WaitForFetched(3);
  std::sort(fetched.begin(), fetched.end());
  CHECK(fetched == Events::Fetched{{7, 3}, {8, 0}, {9, 1}});
  CHECK(stages[0].steps() == UpTo(1));
  CHECK(events.n_downs() == 0);
}

TEST_CASE("an answer to no fetch takes the pipeline down") {
  FakeStage first, last;
  Events events;
  const auto client = MakePipelineClient({first.address(), last.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  v1::StepResponse response;
  response.mutable_fetched()->set_id(3);
  first.Send(response);
  CHECK(events.WaitForDown().starts_with("stage 0 "));
}

TEST_CASE("an invalid token from a stage is not passed on, and the error names the stage") {
  const auto sends = [](auto change) {
    FakeStage* self = nullptr;
    FakeStage only({.on_plan = [&](const v1::StepPlan& plan) {
      v1::StepResponse response;
      response.mutable_result()->set_epoch(plan.epoch());
      response.mutable_result()->set_step(plan.step());
      change(*response.mutable_result()->add_slots());
      self->Send(response);
      return grpc::Status::OK;
    }});
    self = &only;
    Events events;
    const auto client = MakePipelineClient({only.address()}, TestLease(), {.vocab_size = 1000});
    REQUIRE(client->Start(events.Callbacks()).ok());
    client->Send(Plan(1));
    const std::string message = events.WaitForDown();
    INFO(message);
    CHECK(message.starts_with("stage 0 (" + only.address() + ") sent token"));
    client->Stop();
    CHECK(events.WaitForSteps(0).empty());
  };
  for (const int32_t token : {-1, 1000, 1'000'000'000}) {
    sends([&](v1::SlotResult& slot) {
      slot.set_sampled(true);
      slot.set_token(token);
    });
    sends([&](v1::SlotResult& slot) { slot.mutable_logprobs()->add_top_ids(token); });
    sends([&](v1::SlotResult& slot) { slot.add_prompt_logprobs()->add_top_ids(token); });
  }
}

TEST_CASE("a takeover by another router is the cause, even if another stage's stream ends first") {
  FakeStage last({.on_plan = {}});
  FakeStage* neighbour = &last;
  FakeStage first({.on_plan = [&](const v1::StepPlan&) {
    v1::StepResponse odd;
    odd.mutable_draining();
    neighbour->Send(odd);
    return grpc::Status(grpc::StatusCode::ABORTED,
                        "router b of epoch 9 has taken over this worker");
  }});
  Events events;
  const auto client = MakePipelineClient({first.address(), last.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  client->Send(Plan(1));
  const std::string message = events.WaitForDown();
  INFO(message);
  CHECK(message.find("router b of epoch 9") != std::string::npos);
  CHECK(message.starts_with("stage 0 ("));
}

TEST_CASE("a dead stage takes the pipeline down once, and the error names it") {
  for (const int victim : {0, 1, 2}) {
    FakeStage stages[3];
    Events events;
    const auto client = MakePipelineClient(
        {stages[0].address(), stages[1].address(), stages[2].address()}, TestLease());
    REQUIRE(client->Start(events.Callbacks()).ok());
    stages[victim].Die();
    const std::string message = events.WaitForDown();
    INFO(message);
    CHECK(message.starts_with("stage " + std::to_string(victim) + " (" + stages[victim].address() +
                              ")"));
    client->Send(Plan(1));
    client->Stop();
    CHECK(events.n_downs() == 1);
    for (FakeStage& stage : stages) stage.WaitForStreamEnd();
    CHECK(stages[0].steps().empty());
  }
}

TEST_CASE("a failed pipeline ends like one that lost a stage") {
  FakeStage first, last;
  Events events;
  const auto client = MakePipelineClient({first.address(), last.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  client->Fail(absl::UnavailableError("a result of step 9 is not of step 8"));
  client->Fail(absl::UnavailableError("again"));
  CHECK(events.WaitForDown() == "a result of step 9 is not of step 8");
  first.WaitForStreamEnd();
  last.WaitForStreamEnd();
  client->Stop();
  client->Fail(absl::UnavailableError("late"));
  CHECK(events.n_downs() == 1);
}

TEST_CASE("a draining stage announces it, and steps continue") {
  FakeStage first, last;
  Events events;
  std::promise<absl::Status> draining;
  const auto client = MakePipelineClient(
      {first.address(), last.address()}, TestLease(),
      {.on_draining = [&](const absl::Status& status) { draining.set_value(status); }});
  REQUIRE(client->Start(events.Callbacks()).ok());
  v1::StepResponse response;
  response.mutable_draining();
  first.Send(response);
  const absl::Status told = draining.get_future().get();
  CHECK(told.message() == "stage 0 (" + first.address() + ") is shutting down");
  CHECK(LossOf(told)->stage == 0);
  CHECK(LossOf(told)->cause == LossCause::kHandedOver);
  client->Send(Plan(1));
  last.SendResult(kEpoch, 1);
  CHECK(events.WaitForSteps(1) == UpTo(1));
  CHECK(events.n_downs() == 0);
}

TEST_CASE("a stage that ends its stream gives the reason") {
  FakeStage first({.on_plan = [](const v1::StepPlan&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "step 7 after step 5");
  }});
  FakeStage last;
  Events events;
  const auto client = MakePipelineClient({first.address(), last.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  client->Send(Plan(7));
  CHECK(events.WaitForDown() == "stage 0 (" + first.address() + ") is lost: step 7 after step 5");
}

TEST_CASE("a result from a stage that is not the last takes the pipeline down") {
  FakeStage first;
  FakeStage last;
  Events events;
  const auto client = MakePipelineClient({first.address(), last.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  first.SendResult(kEpoch, 1);
  CHECK(events.WaitForDown().starts_with("stage 0 "));
}

TEST_CASE("an unreachable or silent stage fails the start, and the error names it") {
  FakeStage first;
  FakeStage gone;
  const std::string gone_address = gone.address();
  gone.Die();
  Events events;
  absl::Status status =
      MakePipelineClient({first.address(), gone_address}, TestLease())->Start(events.Callbacks());
  REQUIRE(absl::IsUnavailable(status));
  CHECK(status.message().find("stage 1 (" + gone_address + ")") != std::string::npos);

  FakeStage wrong({.answers_hello = false});
  status = MakePipelineClient({wrong.address()}, TestLease())->Start(events.Callbacks());
  REQUIRE(absl::IsFailedPrecondition(status));
  CHECK(status.message().find("stage 0 (" + wrong.address() + ")") != std::string::npos);
  CHECK(events.n_downs() == 0);
}

TEST_CASE("Stop ends the streams, and no callback follows") {
  FakeStage first;
  FakeStage last;
  Events events;
  const auto client = MakePipelineClient({first.address(), last.address()}, TestLease());
  REQUIRE(client->Start(events.Callbacks()).ok());
  for (uint64_t step = 1; step <= 100; ++step) client->Send(Plan(step));
  client->Stop();
  client->Stop();
  first.WaitForStreamEnd();
  last.WaitForStreamEnd();
  CHECK(events.n_downs() == 0);
}

}  // namespace
}  // namespace stagecoach::router
