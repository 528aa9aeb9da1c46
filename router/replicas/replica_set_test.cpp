// Several fake pipelines behind one interface, and what happens to sequences when some are lost.
#include "router/replicas/replica_set.h"

#include <random>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/generators/catch_generators_range.hpp"
#include "router/scheduler/testing/core_pipeline.h"
#include "router/scheduler/testing/fake_stage_client.h"

namespace stagecoach::router {
namespace {

const absl::Status kDrained = absl::CancelledError("drained");
const absl::Status kLoss = absl::UnavailableError("stage 1 is lost");

class Fixture {
 public:
  explicit Fixture(size_t n_replicas, const FakeStageClient::Options& options = {},
                   const SchedulerConfig& config = SmallConfig(2, 200))
      : Fixture(std::vector(n_replicas, options), config) {}
  Fixture(const std::vector<FakeStageClient::Options>& options, const SchedulerConfig& config)
      : config_(config) {
    std::vector<ReplicaOptions> replicas;
    for (const FakeStageClient::Options& one : options) {
      clients.push_back(std::make_unique<FakeStageClient>(config, one));
      replicas.push_back({.config = config, .client = clients.back().get()});
    }
    auto started = ReplicaSet::Start(replicas);
    REQUIRE(started.ok());
    set = *std::move(started);
  }
  ~Fixture() {
    set.reset();
    for (const auto& client : clients) CHECK(client->errors() == std::vector<std::string>{});
  }

  void Add(const FakeStageClient::Options& options = {}) {
    clients.push_back(std::make_unique<FakeStageClient>(config_, options));
    REQUIRE(set->Add({.config = config_, .client = clients.back().get()}).ok());
  }
  // Closes a replica on a thread of its own. Returns once it gets no requests any more.
  std::future<absl::Status> BeginClose(size_t replica, bool move = false) {
    std::function<void()> lose;
    if (move) lose = [&client = *clients[replica]] { client.Fail(kDrained); };
    auto closed = std::async(std::launch::async, [=, this] { return set->Close(replica, lose); });
    // Once the call has begun, a second one is refused. This one itself gives up at once.
    std::stop_source stop;
    stop.request_stop();
    while (absl::IsCancelled(set->Close(replica, nullptr, stop.get_token()))) {
      std::this_thread::yield();
    }
    return closed;
  }

  std::shared_ptr<RecordingSink> Submit(std::unique_ptr<SequenceRequest> request) {
    auto sink = std::make_shared<RecordingSink>();
    request->sink = sink;
    expected_.emplace_back(sink, TokensAlone(*request, config_.max_model_len));
    set->Submit(Alone(std::move(request)));
    return sink;
  }
  void RequireAllAsAlone(bool may_blame = false) const {
    for (const auto& [sink, tokens] : expected_) {
      const RecordingSink::Record record = sink->WaitForEnd();
      REQUIRE(record.n_after_end == 0);
      // Two losses of other causes, and one in its trial: it looks guilty.
      if (may_blame && record.error.code() == absl::StatusCode::kInternal) continue;
      REQUIRE(record.error == absl::OkStatus());
      REQUIRE(record.tokens == tokens);
    }
  }
  // Sequences that each replica has, once it knows of what happened before.
  std::vector<int32_t> Held() const {
    std::vector<int32_t> held;
    for (size_t i = 0; i < set->size(); ++i) {
      const SchedulerSnapshot snapshot = set->scheduler(i).Snapshot().get();
      held.push_back(snapshot.running + snapshot.waiting);
    }
    return held;
  }

  std::vector<std::unique_ptr<FakeStageClient>> clients;
  std::unique_ptr<ReplicaSet> set;

 private:
  SchedulerConfig config_;
  std::vector<std::pair<std::shared_ptr<RecordingSink>, std::vector<int32_t>>> expected_;
};

TEST_CASE("Sequences are spread over the replicas, and get the tokens that they get alone") {
  Fixture fixture(3, {.max_delay_us = 50});
  for (SequenceId id = 1; id <= 30; ++id) {
    fixture.Submit(MakeRequest(id, 40 + static_cast<int>(id), 20));
  }
  fixture.RequireAllAsAlone();
  for (const auto& client : fixture.clients) CHECK(client->plans().size() > 20);
  CHECK(fixture.set->Snapshot().get().generated_tokens == 600);
}

TEST_CASE("The choices of one request go to one replica") {
  Fixture fixture(2, {.hold_results = true});
  std::vector<std::unique_ptr<SequenceRequest>> choices;
  for (SequenceId id = 1; id <= 4; ++id) {
    choices.push_back(MakeRequest(id, 40, 20));
    choices.back()->prompt = choices.front()->prompt;
    choices.back()->sink = std::make_shared<RecordingSink>();
  }
  fixture.set->Submit(std::move(choices));
  CHECK(fixture.Held() == std::vector<int32_t>{4, 0});
}

TEST_CASE("Sequences of a lost pipeline go on at another one, which is not disturbed") {
  Fixture fixture(2, {.hold_results = true});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 6; ++id) sinks.push_back(fixture.Submit(MakeRequest(id, 40, 30)));
  REQUIRE(fixture.Held() == std::vector<int32_t>{3, 3});
  for (const auto& client : fixture.clients) client->Release(8);
  fixture.clients[0]->Break(kLoss);
  CHECK(fixture.Held() == std::vector<int32_t>{0, 6});
  fixture.clients[1]->ReleaseAll();
  fixture.RequireAllAsAlone();
  for (const auto& sink : sinks) CHECK(sink->record().times.preemptions == 0);
}

TEST_CASE("Sequences wait while every pipeline is lost, and go on with the first that works") {
  Fixture fixture(2, {.hold_results = true});
  for (SequenceId id = 1; id <= 6; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  for (const auto& client : fixture.clients) client->Release(8);
  fixture.clients[0]->Break(kLoss);
  REQUIRE(fixture.Held()[0] == 0);
  fixture.clients[1]->Release(16);
  fixture.clients[1]->Break(kLoss);
  fixture.Submit(MakeRequest(7, 40, 30));
  for (const auto& client : fixture.clients) client->ReleaseAll();
  fixture.clients[0]->Restore();
  fixture.RequireAllAsAlone();
}

TEST_CASE("Sequences of two losses in a row stay until their pipeline works again") {
  Fixture fixture(2, {.hold_results = true});
  fixture.Submit(MakeRequest(1, 40, 30));
  REQUIRE(fixture.Held() == std::vector<int32_t>{1, 0});  // so it is in flight
  fixture.clients[0]->Break(kLoss);
  REQUIRE(fixture.Held() == std::vector<int32_t>{0, 1});
  fixture.clients[0]->Restore();
  fixture.clients[1]->Break(kLoss);
  CHECK(fixture.Held() == std::vector<int32_t>{0, 1});
  for (const auto& client : fixture.clients) client->ReleaseAll();
  fixture.clients[1]->Restore();
  fixture.RequireAllAsAlone();
}

TEST_CASE("A pipeline that is lost for good is left out") {
  Fixture fixture(2, {.hold_results = true});
  for (SequenceId id = 1; id <= 6; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  for (const auto& client : fixture.clients) client->Release(8);
  fixture.clients[0]->Lose(kLoss);
  for (SequenceId id = 7; id <= 9; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  for (const auto& client : fixture.clients) client->ReleaseAll();
  fixture.RequireAllAsAlone();
  const SchedulerSnapshot snapshot = fixture.set->Snapshot().get();
  CHECK(!snapshot.down);
  CHECK(snapshot.kv[0].total_blocks == 200);
}

TEST_CASE("A pipeline that gives a wrong result is left out") {
  Fixture fixture({{.wrong_step = 7}, {}}, SmallConfig(2, 200));
  for (SequenceId id = 1; id <= 6; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  fixture.RequireAllAsAlone();
  CHECK(fixture.clients[0]->is_lost());
}

TEST_CASE("When the last pipeline is lost for good, every sequence ends with the reason") {
  Fixture fixture(2, {.hold_results = true});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 6; ++id) {
    auto request = MakeRequest(id, 40, 30);
    sinks.push_back(std::make_shared<RecordingSink>());
    request->sink = sinks.back();
    fixture.set->Submit(Alone(std::move(request)));
  }
  fixture.clients[0]->Lose(kLoss);
  REQUIRE(fixture.Held()[0] == 0);
  fixture.clients[1]->Lose(kLoss);
  for (const auto& sink : sinks) {
    CHECK(sink->WaitForEnd().error.code() == absl::StatusCode::kUnavailable);
  }
  CHECK(fixture.set->Snapshot().get().down);
}

TEST_CASE("A cancelled sequence is not moved, and a moved one can be cancelled") {
  Fixture fixture(2, {.hold_results = true});
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (SequenceId id = 1; id <= 4; ++id) {
    auto request = MakeRequest(id, 40, 30);
    sinks.push_back(std::make_shared<RecordingSink>());
    request->sink = sinks.back();
    fixture.set->Submit(Alone(std::move(request)));
  }
  fixture.set->Cancel(1);
  fixture.clients[0]->Break(kLoss);
  CHECK(fixture.Held() == std::vector<int32_t>{0, 3});
  fixture.set->Cancel(3);
  CHECK(fixture.Held() == std::vector<int32_t>{0, 2});
  CHECK(!sinks[0]->record().ended());
  CHECK(!sinks[2]->record().ended());
}

TEST_CASE("A drain ends when the last sequence has, wherever that is") {
  Fixture fixture(2, {.hold_results = true});
  for (SequenceId id = 1; id <= 2; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  fixture.clients[0]->Release(4);
  fixture.clients[1]->ReleaseAll();
  std::future<void> drained = fixture.set->Drain();
  auto late = std::make_shared<RecordingSink>();
  auto request = MakeRequest(9, 40, 30);
  request->sink = late;
  fixture.set->Submit(Alone(std::move(request)));
  CHECK(late->WaitForEnd().error.code() == absl::StatusCode::kUnavailable);
  CHECK(drained.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  fixture.clients[0]->Break(kLoss);
  drained.get();
  fixture.RequireAllAsAlone();
}

TEST_CASE("A drained replica finishes its sequences, and others get the new ones") {
  Fixture fixture(2, {.hold_results = true});
  for (SequenceId id = 1; id <= 4; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  REQUIRE(fixture.Held() == std::vector<int32_t>{2, 2});
  std::future<absl::Status> closed = fixture.BeginClose(0);
  for (SequenceId id = 5; id <= 8; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  CHECK(fixture.Held() == std::vector<int32_t>{2, 6});
  fixture.clients[0]->ReleaseAll();
  CHECK(closed.get() == absl::OkStatus());
  CHECK(fixture.Held()[0] == 0);
  CHECK(absl::IsFailedPrecondition(fixture.set->Close(0)));
  fixture.clients[0]->Fail(kDrained);
  fixture.clients[1]->ReleaseAll();
  fixture.RequireAllAsAlone();
  CHECK(fixture.set->Snapshot().get().kv[0].total_blocks == 200);
}

TEST_CASE("Sequences of a replica that is drained at once go on at others") {
  Fixture fixture(2, {.hold_results = true});
  for (SequenceId id = 1; id <= 4; ++id) fixture.Submit(MakeRequest(id, 40, 60));
  for (const auto& client : fixture.clients) client->Release(12);
  CHECK(fixture.BeginClose(0, /*move=*/true).get() == absl::OkStatus());
  CHECK(fixture.Held() == std::vector<int32_t>{0, 4});
  fixture.clients[1]->ReleaseAll();
  fixture.RequireAllAsAlone();
}

TEST_CASE("The last replica that works cannot be drained") {
  Fixture fixture(2, {.hold_results = true});
  CHECK(absl::IsNotFound(fixture.set->Close(2)));
  CHECK(fixture.set->Close(1) == absl::OkStatus());
  CHECK(absl::IsFailedPrecondition(fixture.set->Close(0)));
}

TEST_CASE("A replica goes on if the others are lost for good while it drains") {
  Fixture fixture(2, {.hold_results = true});
  for (SequenceId id = 1; id <= 2; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  std::future<absl::Status> closed = fixture.BeginClose(0);
  fixture.clients[1]->Lose(kLoss);
  CHECK(absl::IsAborted(closed.get()));
  fixture.Submit(MakeRequest(3, 40, 30));
  fixture.clients[0]->ReleaseAll();
  fixture.RequireAllAsAlone();
}

TEST_CASE("A drain ends with the set, or when it is asked to") {
  Fixture fixture(2, {.hold_results = true});
  fixture.Submit(MakeRequest(1, 40, 30));
  std::stop_source stop;
  stop.request_stop();
  CHECK(absl::IsCancelled(fixture.set->Close(0, nullptr, stop.get_token())));
  std::future<absl::Status> closed = fixture.BeginClose(0);
  fixture.set->Stop();
  CHECK(absl::IsCancelled(closed.get()));
}

TEST_CASE("An added replica gets requests, and sequences that wait for a place") {
  Fixture fixture(1, {.hold_results = true});
  fixture.Submit(MakeRequest(1, 40, 30));
  fixture.Add({.hold_results = true});
  fixture.Submit(MakeRequest(2, 40, 30));
  CHECK(fixture.Held() == std::vector<int32_t>{1, 1});
  for (const auto& client : fixture.clients) client->Break(kLoss);
  fixture.Add();
  fixture.RequireAllAsAlone();
  CHECK(fixture.set->size() == 3);
}

TEST_CASE("A replica that cannot start is not added, and its number is free") {
  Fixture fixture(1);
  FakeStageClient broken(SmallConfig(2, 200), {.start_status = kLoss});
  CHECK(fixture.set->Add({.config = SmallConfig(2, 200), .client = &broken}) == kLoss);
  fixture.Add();
  for (SequenceId id = 1; id <= 4; ++id) fixture.Submit(MakeRequest(id, 40, 30));
  fixture.RequireAllAsAlone();
  for (const auto& client : fixture.clients) CHECK(client->plans().size() > 10);
}

TEST_CASE("Rolling changes under a load change no token") {
  Fixture fixture(2, {.max_delay_us = 30});
  SequenceId id = 1;
  for (size_t round = 0; round < 6; ++round) {
    for (int i = 0; i < 20; ++i, ++id) {
      fixture.Submit(MakeRequest(id, 10 + static_cast<int>(id % 50), 40));
    }
    std::future<absl::Status> closed = fixture.BeginClose(round, /*move=*/round % 2 == 0);
    fixture.Add({.max_delay_us = 30});
    CHECK(closed.get() == absl::OkStatus());
    if (round % 2 == 1) fixture.clients[round]->Fail(kDrained);
  }
  fixture.RequireAllAsAlone();
}

// Pipelines are lost and replaced at random moments under a random load.
void RunRandom(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t n) { return random() % n; };
  SchedulerConfig config = SmallConfig(static_cast<int>(1 + pick(3)), 60 + pick(100));
  config.max_sequences = static_cast<int32_t>(2 + pick(14));
  const size_t n_replicas = 2 + pick(2);
  Fixture fixture(n_replicas, {.max_delay_us = 30, .delay_seed = seed}, config);
  std::vector<bool> is_broken(n_replicas);
  for (SequenceId id = 1; id <= 80; ++id) {
    auto request = MakeRequest(id, static_cast<int>(1 + pick(100)), static_cast<int>(1 + pick(60)));
    if (pick(4) == 0) request->sampling.set_n_prompt_logprobs(0);
    if (id > 1 && pick(2) == 0) {
      const int n = static_cast<int>(std::min<size_t>(40, request->prompt->size()));
      BeginLike(*MakeRequest(1, 40, 1), n, *request);
    }
    const bool cancel = pick(10) == 0;
    if (cancel) {
      request->sink = std::make_shared<RecordingSink>();
      fixture.set->Submit(Alone(std::move(request)));
    } else {
      fixture.Submit(std::move(request));
    }
    if (pick(6) == 0) {
      const size_t replica = pick(n_replicas);
      if (is_broken[replica]) {
        fixture.clients[replica]->Restore();
      } else {
        fixture.clients[replica]->Break(kLoss);
      }
      is_broken[replica] = !is_broken[replica];
    }
    if (cancel) fixture.set->Cancel(id);
  }
  for (size_t i = 0; i < n_replicas; ++i) {
    if (!is_broken[i]) continue;
    if (i > 0 && pick(2) == 0) {
      fixture.clients[i]->Lose(kLoss);
    } else {
      fixture.clients[i]->Restore();
    }
  }
  fixture.RequireAllAsAlone(/*may_blame=*/true);
  fixture.set->Drain().get();
  for (const auto& group : fixture.set->Snapshot().get().kv) {
    CHECK(group.free_blocks == group.total_blocks);
  }
}

TEST_CASE("Random losses under a random load change no token") {
  RunRandom(GENERATE(Catch::Generators::range<uint64_t>(1, 40)));
}

}  // namespace
}  // namespace stagecoach::router
