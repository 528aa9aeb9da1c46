// Random loads and random pools: every sequence gets exactly the tokens that it gets alone, no plan
// has an error, and all blocks are free at the end.
#include <map>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/generators/catch_generators_range.hpp"
#include "router/scheduler/core.h"
#include "router/scheduler/testing/fake_stage_client.h"
#include "router/scheduler/testing/random_loads.h"

namespace stagecoach::router {
namespace {

// Without threads: submissions, cancels and results come in random order.
void RunCore(uint64_t seed) {
  std::mt19937_64 random(seed);
  SchedulerConfig config = RandomConfig(random);
  MaybeRecurrent(random, config);
  INFO("seed " << seed << ": " << Describe(config));
  REQUIRE(ValidateConfig(config).ok());
  SchedulerCore core(config);
  StrictStage stage(config);
  std::deque<v1::StepPlan> planned;    // that the stage has not executed yet
  std::deque<v1::StepResult> results;  // of executed steps
  const auto execute = [&] {
    results.push_back(stage.Apply(planned.front()));
    planned.pop_front();
    if (!stage.errors().empty()) FAIL(stage.errors().front());
  };
  std::map<SequenceId, Expected> expected;
  const SequenceId n_sequences = static_cast<SequenceId>(Pick(random, 1, 120));
  const int submit_weight = Pick(random, 1, 20);
  const int cancel_weight = Pick(random, 0, 1);
  const int loss_weight = Pick(random, 0, 3) == 0 ? Pick(random, 1, 20) : 0;  // per 1000 events
  const auto cancel_one = [&] {
    if (expected.empty()) return;
    const auto id = static_cast<SequenceId>(Pick(random, 1, static_cast<int>(expected.size())));
    if (!expected.at(id).sink->record().ended()) expected.at(id).cancelled = true;
    core.Cancel(id);
  };
  uint64_t n_events = 0;
  while (expected.size() < n_sequences || !core.empty() || !planned.empty() || !results.empty()) {
    REQUIRE(++n_events < 3'000'000);
    const int event = Pick(random, 0, 30);
    if (event < submit_weight && expected.size() < n_sequences) {
      std::vector<std::unique_ptr<SequenceRequest>> requests;
      const SequenceId id = expected.size() + 1;
      requests.push_back(RandomRequest(random, id, config));
      expected.emplace(id, Expect(*requests.back(), config));
      core.Submit(std::move(requests), std::chrono::steady_clock::now());
    } else if (event == 30 && cancel_weight == 1) {
      cancel_one();
    } else if (Pick(random, 1, 1000) <= loss_weight) {
      const uint64_t epoch = core.state().epoch() + 1;
      // Results of the old epoch come too late, or never.
      core.Interrupt(absl::UnavailableError("stage 1 is lost"));
      core.state().CheckConsistency();
      if (Pick(random, 0, 1) == 0) results.clear();
      planned.clear();
      REQUIRE(core.NextPlan() == nullptr);
      if (cancel_weight == 1 && Pick(random, 0, 3) == 0) cancel_one();
      const bool kv_kept = Pick(random, 0, 2) > 0;
      stage.BeginEpoch(epoch, kv_kept);
      core.Resume(epoch, kv_kept);
      core.state().CheckConsistency();
    } else if (!planned.empty() && Pick(random, 0, 1) == 0) {
      execute();  // stages run ahead of the results
    } else if (!planned.empty() || !results.empty()) {
      if (results.empty()) execute();
      core.Result(results.front());
      results.pop_front();
    }
    if (n_events % 16 == 0) core.state().CheckConsistency();
    while (std::unique_ptr<v1::StepPlan> plan = core.NextPlan()) {
      planned.push_back(std::move(*plan));
    }
  }
  core.state().CheckConsistency();
  for (const auto& [id, e] : expected) CheckOutcome(e);
  for (const auto& group : core.Snapshot().kv) REQUIRE(group.free_blocks == group.total_blocks);
}

TEST_CASE("Random loads give every sequence the same tokens as it gets alone") {
  const uint64_t seed = GENERATE(Catch::Generators::range<uint64_t>(1, 151));
  RunCore(seed);
}

// The same with the thread, the mailbox, and a pipeline that delays results randomly.
void RunThreaded(uint64_t seed) {
  std::mt19937_64 random(seed);
  SchedulerConfig config = RandomConfig(random);
  MaybeRecurrent(random, config);
  if (config.prefix_cache && seed % 3 == 0) config.kv_scope = "model";
  INFO("seed " << seed << ": " << Describe(config));
  FakeStageClient client(config, {.max_delay_us = 50, .delay_seed = seed});
  auto scheduler = Scheduler::Start(config, &client);
  REQUIRE(scheduler.ok());
  std::vector<Expected> expected;
  const auto call = std::make_shared<ClientCall>();  // a single call, which a drain lets finish
  const auto n_sequences = static_cast<SequenceId>(Pick(random, 50, 150));
  for (SequenceId id = 1; id <= n_sequences; ++id) {
    std::vector<std::unique_ptr<SequenceRequest>> requests;
    requests.push_back(RandomRequest(random, id, config));
    requests.back()->call = call;
    expected.push_back(Expect(*requests.back(), config));
    (*scheduler)->Submit(std::move(requests));
    if (seed % 2 == 0 && Pick(random, 0, 19) == 0) {
      client.Interrupt(absl::UnavailableError("stage 1 is lost"));
    }
    if (Pick(random, 0, 9) == 0) {
      const int victim = Pick(random, 1, static_cast<int>(id));
      expected[victim - 1].cancelled = true;
      (*scheduler)->Cancel(static_cast<SequenceId>(victim));
    }
  }
  (*scheduler)->Drain().get();
  const SchedulerSnapshot snapshot = (*scheduler)->Snapshot().get();
  for (const auto& group : snapshot.kv) REQUIRE(group.free_blocks == group.total_blocks);
  REQUIRE(snapshot.running + snapshot.waiting == 0);
  scheduler->reset();
  REQUIRE(client.errors() == std::vector<std::string>{});
  for (const Expected& e : expected) CheckOutcome(e);
}

TEST_CASE("Random loads through the scheduler's thread") {
  const uint64_t seed = GENERATE(Catch::Generators::range<uint64_t>(1000, 1020));
  RunThreaded(seed);
}

}  // namespace
}  // namespace stagecoach::router
