#include "router/dispatch/pipeline_keeper.h"

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "catch2/catch_test_macros.hpp"
#include "common/closable_queue.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {
namespace {

using Recoveries = std::vector<std::array<uint64_t, kLossCauses>>;

v1::Lease LeaseOf(uint64_t epoch) {
  v1::Lease lease;
  lease.set_epoch(epoch);
  lease.set_holder("me");
  return lease;
}

// A client of one epoch whose end the test decides.
class EpochClient final : public StageClient {
 public:
  explicit EpochClient(uint64_t epoch) : epoch(epoch) {}
  absl::Status Start(StageClientEvents events) override {
    events_ = std::move(events);
    return start_status;
  }
  void Send(std::unique_ptr<v1::StepPlan> plan) override { steps.push_back(plan->step()); }
  void Fetch(uint64_t, std::unique_ptr<v1::KvFetch> fetch) override {
    v1::KvFetched fetched;
    fetched.set_id(fetch->id());
    fetched.set_n_blocks(7);
    events_.on_fetched(fetched);
  }
  void Fail(const absl::Status& reason) override { events_.on_down(reason); }
  void Stop() override { stopped = true; }
  void Result(uint64_t step) {
    auto result = std::make_unique<v1::StepResult>();
    result->set_epoch(epoch);
    result->set_step(step);
    events_.on_result(std::move(result));
  }

  const uint64_t epoch;
  absl::Status start_status;
  std::vector<uint64_t> steps;
  bool stopped = false;

 private:
  StageClientEvents events_;
};

// A keeper whose pipeline is restored as `restores` says, one entry per attempt; then by epochs
// that follow one another.
class Fixture {
 public:
  explicit Fixture(std::vector<absl::Status> restores = {}, bool recovers = true)
      : restores_(std::move(restores)), keeper(LeaseOf(5), /*n_stages=*/2, MakeHooks(recovers)) {
    StageClientEvents events;
    events.on_result = [this](std::unique_ptr<v1::StepResult> result) {
      Say("result " + std::to_string(result->epoch()) + "/" + std::to_string(result->step()));
    };
    events.on_fetched = [this](const v1::KvFetched& fetched) {
      Say("fetched " + std::to_string(fetched.id()) + ": " + std::to_string(fetched.n_blocks()));
    };
    events.on_down = [this](const absl::Status& reason) {
      Say("down: " + std::string(reason.message()));
    };
    events.on_interrupted = [this](const absl::Status& reason) {
      Say("interrupted: " + std::string(reason.message()));
    };
    events.on_resumed = [this](uint64_t epoch, bool kv_kept) {
      Say("resumed " + std::to_string(epoch) + (kv_kept ? " with its KV cache" : ""));
    };
    REQUIRE(keeper.Start(std::move(events)).ok());
  }
  ~Fixture() { keeper.Stop(); }

  // The next event; waits for it.
  std::string Next() { return said_.Pop().value_or("closed"); }
  EpochClient& client() { return *clients_.back(); }
  void Lose(const std::string& what, LossCause cause = LossCause::kLost) {
    client().Fail(WithLoss(absl::UnavailableError(what), {.stage = 1, .cause = cause}));
  }
  void Drain(const std::string& what) {
    on_draining_(
        WithLoss(absl::UnavailableError(what), {.stage = 0, .cause = LossCause::kHandedOver}));
  }
  void StopsItself() { may_hand_over_ = false; }
  void Send(uint64_t epoch, uint64_t step) {
    auto plan = std::make_unique<v1::StepPlan>();
    plan->set_epoch(epoch);
    plan->set_step(step);
    keeper.Send(std::move(plan));
  }
  void Fetch(uint64_t epoch, uint64_t id) {
    auto fetch = std::make_unique<v1::KvFetch>();
    fetch->set_id(id);
    keeper.Fetch(epoch, std::move(fetch));
  }

 private:
  // Forwards to a client that the test keeps.
  class Shared final : public StageClient {
   public:
    explicit Shared(std::shared_ptr<EpochClient> client) : client_(std::move(client)) {}
    absl::Status Start(StageClientEvents events) override {
      return client_->Start(std::move(events));
    }
    void Send(std::unique_ptr<v1::StepPlan> plan) override { client_->Send(std::move(plan)); }
    void Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) override {
      client_->Fetch(epoch, std::move(fetch));
    }
    void Fail(const absl::Status& reason) override { client_->Fail(reason); }
    void Stop() override { client_->Stop(); }

   private:
    const std::shared_ptr<EpochClient> client_;
  };

  void Say(std::string what) { said_.Push(std::move(what)).IgnoreError(); }

  PipelineKeeperHooks MakeHooks(bool recovers) {
    PipelineKeeperHooks hooks;
    hooks.connect = [this](const v1::Lease& lease,
                           std::function<void(const absl::Status&)> on_draining) {
      on_draining_ = std::move(on_draining);
      clients_.push_back(std::make_shared<EpochClient>(lease.epoch()));
      return std::make_unique<Shared>(clients_.back());
    };
    if (recovers) {
      hooks.restore = [this](uint64_t lost_epoch, const std::stop_token&,
                             const EnterPhase&) -> absl::StatusOr<RestoredPipeline> {
        lost_epochs.push_back(lost_epoch);
        const size_t attempt = n_restores_++;
        if (attempt < restores_.size() && !restores_[attempt].ok()) return restores_[attempt];
        return RestoredPipeline{.lease = LeaseOf(6 + attempt), .kv_kept = kv_kept};
      };
    }
    hooks.may_hand_over = [this](const absl::Status& draining) {
      Say("hand over: " + std::string(draining.message()));
      return may_hand_over_.load();
    };
    hooks.on_lost = [this](const absl::Status&) { Say("lost"); };
    return hooks;
  }

 public:
  std::atomic<bool> kv_kept = false;  // what restoring finds
  std::vector<uint64_t> lost_epochs;  // by attempt to restore

 private:
  const std::vector<absl::Status> restores_;
  size_t n_restores_ = 0;
  std::vector<std::shared_ptr<EpochClient>> clients_;
  std::function<void(const absl::Status&)> on_draining_;
  std::atomic<bool> may_hand_over_{true};
  ClosableQueue<std::string> said_;

 public:
  PipelineKeeper keeper;  // last: uses all above
};

TEST_CASE("after a loss the pipeline goes on in the next epoch, with a client of its own") {
  Fixture fixture;
  EpochClient& first = fixture.client();
  fixture.Send(5, 1);
  CHECK(first.steps == std::vector<uint64_t>{1});
  first.Result(1);
  CHECK(fixture.Next() == "result 5/1");
  fixture.Lose("stage 1 is lost");
  CHECK(fixture.Next() == "interrupted: stage 1 is lost");
  CHECK(fixture.Next() == "resumed 6");
  CHECK(first.stopped);
  fixture.Send(5, 2);  // planned before the scheduler heard of the loss
  fixture.Send(6, 1);
  CHECK(fixture.client().epoch == 6);
  CHECK(fixture.client().steps == std::vector<uint64_t>{1});
  fixture.client().Result(1);
  CHECK(fixture.Next() == "result 6/1");
  CHECK(fixture.keeper.Read().recoveries == Recoveries{{{0, 0, 0}, {1, 0, 0}}});
  CHECK(fixture.keeper.Read().recovering.empty());
}

TEST_CASE("fetches go to the client of their epoch, and its answers come back") {
  Fixture fixture;
  fixture.Fetch(5, 1);
  CHECK(fixture.Next() == "fetched 1: 7");
  fixture.Lose("stage 1 is lost");
  CHECK(fixture.Next() == "interrupted: stage 1 is lost");
  CHECK(fixture.Next() == "resumed 6");
  fixture.Fetch(5, 2);  // asked for before the scheduler heard of the loss
  fixture.Fetch(6, 3);
  CHECK(fixture.Next() == "fetched 3: 7");
}

TEST_CASE("a stage that drains is handed over like a lost one, as often as it may be") {
  Fixture fixture;
  fixture.Drain("stage 0 is shutting down");
  CHECK(fixture.Next() == "hand over: stage 0 is shutting down");
  CHECK(fixture.Next() == "interrupted: stage 0 is shutting down");
  CHECK(fixture.Next() == "resumed 6");
  for (int i = 0; i < PipelineKeeper::kMostBarrenLosses; ++i) {
    fixture.Lose("stage 1 is shutting down", LossCause::kHandedOver);
    CHECK(fixture.Next() == "interrupted: stage 1 is shutting down");
    CHECK(fixture.Next().starts_with("resumed"));
  }
  CHECK(fixture.keeper.Read().recoveries ==
        Recoveries{{{0, 0, 1}, {0, 0, PipelineKeeper::kMostBarrenLosses}}});
}

TEST_CASE("a stage that drains while the router stops is not handed over") {
  Fixture fixture;
  fixture.StopsItself();
  fixture.Drain("stage 0 is shutting down");
  CHECK(fixture.Next() == "hand over: stage 0 is shutting down");
  fixture.client().Result(1);
  CHECK(fixture.Next() == "result 5/1");
}

TEST_CASE("recoveries are counted by stage and cause") {
  Fixture fixture;
  for (const LossCause cause : {LossCause::kStalled, LossCause::kLost, LossCause::kStalled}) {
    fixture.Lose("stage 1 is lost", cause);
    CHECK(fixture.Next() == "interrupted: stage 1 is lost");
    CHECK(fixture.Next().starts_with("resumed"));
  }
  CHECK(fixture.keeper.Read().recoveries == Recoveries{{{0, 0, 0}, {1, 2, 0}}});
}

TEST_CASE("the latest recoveries are remembered, with what was lost and whether the KV cache was") {
  Fixture fixture;
  CHECK(fixture.keeper.Latest().empty());
  for (size_t i = 0; i < PipelineKeeper::kMostLatest + 1; ++i) {
    fixture.kv_kept = i == PipelineKeeper::kMostLatest;
    fixture.Lose("stage 1 is lost, time " + std::to_string(i));
    CHECK(fixture.Next().starts_with("interrupted"));
    CHECK(fixture.Next().starts_with("resumed"));
    fixture.client().Result(1);
    CHECK(fixture.Next().starts_with("result"));
  }
  const std::vector<Recovery> latest = fixture.keeper.Latest();
  REQUIRE(latest.size() == PipelineKeeper::kMostLatest);
  CHECK(latest.front().reason == "stage 1 is lost, time 1");
  CHECK_FALSE(latest.front().kv_kept);
  CHECK(latest.back().stage == 1);
  CHECK(latest.back().phase.empty());
  CHECK(latest.back().lasted.count() > 0);
  CHECK(latest.back().kv_kept);
}

TEST_CASE("a failed attempt to restore is repeated, after the loss of the same epoch") {
  Fixture fixture({absl::UnavailableError("stage 0 died too"), absl::OkStatus()});
  fixture.Lose("stage 1 is lost");
  CHECK(fixture.Next() == "interrupted: stage 1 is lost");
  CHECK(fixture.Next() == "resumed 7");
  CHECK(fixture.lost_epochs == std::vector<uint64_t>{5, 5});
}

TEST_CASE("the scheduler hears whether the KV cache was kept, after each loss") {
  Fixture fixture;
  fixture.kv_kept = true;
  fixture.Lose("stage 1 is lost");
  CHECK(fixture.Next() == "interrupted: stage 1 is lost");
  CHECK(fixture.Next() == "resumed 6 with its KV cache");
  fixture.kv_kept = false;
  fixture.Lose("stage 0 is lost");
  CHECK(fixture.Next() == "interrupted: stage 0 is lost");
  CHECK(fixture.Next() == "resumed 7");
  CHECK(fixture.lost_epochs == std::vector<uint64_t>{5, 6});
}

TEST_CASE("a stage that does not come back ends the pipeline, and the error names the loss") {
  Fixture fixture({absl::DeadlineExceededError("no answer within 60 s")});
  fixture.Lose("stage 1 is lost");
  CHECK(fixture.Next() == "interrupted: stage 1 is lost");
  CHECK(fixture.Next() == "down: stage 1 is lost; it was not replaced: no answer within 60 s");
  CHECK(fixture.Next() == "lost");
}

TEST_CASE("workers that another router has taken are left to it") {
  Fixture fixture({absl::AbortedError("router b has its lease")});
  fixture.Lose("stage 1 is lost");
  CHECK(fixture.Next() == "interrupted: stage 1 is lost");
  CHECK(fixture.Next() == "down: stage 1 is lost; it was not replaced: router b has its lease");
  CHECK(fixture.Next() == "lost");
}

TEST_CASE("losses without any result between them end the pipeline") {
  Fixture fixture;
  for (int i = 0; i < PipelineKeeper::kMostBarrenLosses; ++i) {
    fixture.Lose("stage 1 is lost");
    CHECK(fixture.Next() == "interrupted: stage 1 is lost");
    CHECK(fixture.Next().starts_with("resumed"));
  }
  fixture.Lose("stage 1 is lost");
  CHECK(fixture.Next() == "down: stage 1 is lost");
  CHECK(fixture.Next() == "lost");
}

TEST_CASE("without recovery every loss is final, as is a wrong result") {
  Fixture without({}, /*recovers=*/false);
  without.Lose("stage 1 is lost");
  CHECK(without.Next() == "down: stage 1 is lost");
  CHECK(without.Next() == "lost");
  Fixture with;
  with.keeper.Fail(absl::InternalError("the result of step 3 has a slot that was not planned"));
  CHECK(with.Next().starts_with("down: the result of step 3"));
  CHECK(with.Next() == "lost");
}

TEST_CASE("a caller whose stage was lost gets the lease of the next epoch") {
  Fixture fixture;
  CHECK(fixture.keeper.AwaitLease()->epoch() == 5);
  std::future<absl::StatusOr<v1::Lease>> next =
      std::async(std::launch::async, [&] { return fixture.keeper.AwaitLease(5); });
  fixture.Lose("stage 1 is lost");
  CHECK(next.get()->epoch() == 6);
  const absl::StatusOr<v1::Lease> unchanged = fixture.keeper.AwaitLease(6);
  CHECK(absl::StrContains(unchanged.status().message(), "did not change"));
}

}  // namespace
}  // namespace stagecoach::router
