// Random loads on two servers that share a KV store: every sequence gets exactly the tokens that it
// gets alone, whatever is saved, restored, lost or cancelled in between. StrictStage checks that
// each row reads what its sequence demands.
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/generators/catch_generators_range.hpp"
#include "router/scheduler/core.h"
#include "router/scheduler/testing/random_loads.h"

namespace stagecoach::router {
namespace {

// One scheduler with its pipeline. Plans, results, fetches and answers take random times.
class SharingServer {
 public:
  SharingServer(const SchedulerConfig& config, FakeKvStore* store)
      : core(config), stage_(config, store) {
    REQUIRE(ValidateConfig(config).ok());
  }

  bool is_idle() const {
    return core.empty() && planned_.empty() && results_.empty() && fetches_.empty() &&
           answers_.empty();
  }
  // Lets one thing happen, if there is something to do.
  void Go(std::mt19937_64& random) {
    switch (Pick(random, 0, 3)) {
      case 0:
        if (!planned_.empty()) Execute();  // stages run ahead of the results
        break;
      case 1:
        if (results_.empty() && !planned_.empty()) Execute();
        if (results_.empty()) break;
        core.Result(results_.front());
        results_.pop_front();
        break;
      case 2:
        if (fetches_.empty()) break;
        answers_.push_back(stage_.Fetch(*fetches_.front()));
        fetches_.pop_front();
        break;
      default:
        if (answers_.empty()) break;
        core.Fetched(answers_.front());
        answers_.pop_front();
    }
  }
  void Lose(std::mt19937_64& random) {
    const uint64_t epoch = core.state().epoch() + 1;
    core.Interrupt(absl::UnavailableError("stage 1 is lost"));
    core.state().CheckConsistency();
    // Results and answers of the old epoch come too late, or never.
    if (Pick(random, 0, 1) == 0) results_.clear();
    if (Pick(random, 0, 1) == 0) answers_.clear();
    planned_.clear();
    fetches_.clear();
    REQUIRE(core.NextPlan() == nullptr);
    REQUIRE(core.TakeFetches().empty());
    const bool kv_kept = Pick(random, 0, 2) > 0;
    stage_.BeginEpoch(epoch, kv_kept);
    core.Resume(epoch, kv_kept);
  }
  void Plan() {
    for (auto& fetch : core.TakeFetches()) fetches_.push_back(std::move(fetch));
    while (std::unique_ptr<v1::StepPlan> plan = core.NextPlan()) {
      planned_.push_back(std::move(*plan));
    }
  }
  void CheckEnd() const {
    core.state().CheckConsistency();
    for (const auto& group : core.Snapshot().kv) REQUIRE(group.free_blocks == group.total_blocks);
    REQUIRE(stage_.n_held() == 0);
  }

  SchedulerCore core;

 private:
  void Execute() {
    results_.push_back(stage_.Apply(planned_.front()));
    planned_.pop_front();
    if (!stage_.errors().empty()) FAIL(stage_.errors().front());
  }

  StrictStage stage_;
  std::deque<v1::StepPlan> planned_;    // that the stage has not executed yet
  std::deque<v1::StepResult> results_;  // of executed steps
  std::deque<std::unique_ptr<v1::KvFetch>> fetches_;
  std::deque<v1::KvFetched> answers_;
};

SchedulerConfig RandomStoreConfig(std::mt19937_64& random) {
  SchedulerConfig config = RandomConfig(random);
  config.prefix_cache = true;
  config.kv_scope = "model";
  config.kv_fetch_min_tokens = Pick(random, 0, 2) == 0 ? 64 : 1;
  config.kv_blocks_beside = Pick(random, 1, 4);
  MaybeRecurrent(random, config);
  return config;
}

// The same model on a server with other limits and pools.
SchedulerConfig AnotherOf(const SchedulerConfig& config, std::mt19937_64& random) {
  SchedulerConfig other = config;
  other.n_microbatches = 1 << Pick(random, 0, 2);
  other.max_sequences = Pick(random, 1, 24);
  if (other.is_recurrent) {
    other.n_states = static_cast<uint64_t>(other.max_sequences + Pick(random, 0, 20));
  }
  for (auto& group : other.kv_groups) group.n_blocks += static_cast<uint64_t>(Pick(random, 0, 20));
  return other;
}

// Returns the number of restored tokens.
uint64_t RunSharing(uint64_t seed) {
  std::mt19937_64 random(seed);
  const SchedulerConfig config = RandomStoreConfig(random);
  INFO("seed " << seed << ": " << Describe(config));
  FakeKvStore store;
  SharingServer servers[] = {{config, &store}, {AnotherOf(config, random), &store}};
  std::map<SequenceId, Expected> expected;
  const auto n_sequences = static_cast<SequenceId>(Pick(random, 1, 100));
  const int submit_weight = Pick(random, 1, 20);                               // per 100 events
  const int cancel_weight = Pick(random, 0, 1) * 2;                            // likewise
  const int loss_weight = Pick(random, 0, 2) == 0 ? Pick(random, 1, 20) : 0;   // per 1000 events
  const int erase_weight = Pick(random, 0, 2) == 0 ? Pick(random, 1, 50) : 0;  // likewise
  const auto submit = [&](SharingServer& server) {
    std::vector<std::unique_ptr<SequenceRequest>> choices;
    const int n_choices = Pick(random, 0, 3) == 0 ? Pick(random, 2, 5) : 1;
    const auto like = RandomRequest(random, expected.size() + 1, config);
    for (int i = 0; i < n_choices; ++i) {
      const SequenceId id = expected.size() + 1;
      choices.push_back(std::make_unique<SequenceRequest>(*like));
      choices.back()->id = id;
      choices.back()->sampling.set_seed(id);
      expected.emplace(id, Expect(*choices.back(), config));
    }
    server.core.Submit(std::move(choices), std::chrono::steady_clock::now());
  };
  const auto cancel_one = [&](SharingServer& server) {
    if (expected.empty()) return;
    const auto id = static_cast<SequenceId>(Pick(random, 1, static_cast<int>(expected.size())));
    if (server.core.state().Find(id) == nullptr) return;
    expected.at(id).cancelled = true;
    server.core.Cancel(id);
  };
  uint64_t n_events = 0;
  const auto is_over = [&] {
    return expected.size() >= n_sequences && servers[0].is_idle() && servers[1].is_idle();
  };
  while (!is_over()) {
    REQUIRE(++n_events < 3'000'000);
    SharingServer& server = servers[Pick(random, 0, 1)];
    if (Pick(random, 1, 100) <= submit_weight && expected.size() < n_sequences) submit(server);
    if (Pick(random, 1, 100) <= cancel_weight) cancel_one(server);
    if (Pick(random, 1, 1000) <= loss_weight) server.Lose(random);
    if (Pick(random, 1, 1000) <= erase_weight && !store.empty()) {
      store.erase(std::next(store.begin(), Pick(random, 0, static_cast<int>(store.size()) - 1)));
    }
    server.Go(random);
    if (n_events % 16 == 0) server.core.state().CheckConsistency();
    server.Plan();
  }
  for (const auto& [id, e] : expected) CheckOutcome(e);
  uint64_t n_restored = 0;
  for (const SharingServer& server : servers) {
    server.CheckEnd();
    n_restored += server.core.Snapshot().kv_store_hits;
  }
  return n_restored;
}

TEST_CASE("Random loads of two servers with a common store give the tokens of each alone") {
  const uint64_t seed = GENERATE(Catch::Generators::range<uint64_t>(1, 151));
  RunSharing(seed);
}

TEST_CASE("Random loads of two servers with a common store restore blocks") {
  uint64_t n_restored = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) n_restored += RunSharing(seed);
  CHECK(n_restored > 200);
}

}  // namespace
}  // namespace stagecoach::router
