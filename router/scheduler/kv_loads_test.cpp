#include "router/scheduler/kv_loads.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/tenant.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

v1::KvFetched AnswerOf(uint64_t id, uint32_t n_blocks) {
  v1::KvFetched fetched;
  fetched.set_id(id);
  fetched.set_n_blocks(n_blocks);
  return fetched;
}

SchedulerConfig StoreConfig(uint64_t n_blocks) {
  SchedulerConfig config;
  config.kv_groups = {{.window = 0, .n_blocks = n_blocks}};
  config.kv_scope = "model";
  return config;
}

class LoadsFixture {
 public:
  explicit LoadsFixture(const SchedulerConfig& config)
      : kv_(config.kv_groups, 128, true, config.kv_scope), loads(config, &kv_) {}

  Sequence* Make(std::unique_ptr<SequenceRequest> request) {
    sequences_.push_back(
        std::make_unique<Sequence>(std::move(request), &tenant_, sequences_.size(), Now()));
    return sequences_.back().get();
  }
  Sequence* Make(SequenceId id, int n_prompt) { return Make(MakeRequest(id, n_prompt, 4)); }
  // Null: the sequence does not load.
  Sequence* Begin(Sequence* sequence, bool has_twin = false) {
    const auto begun = loads.Begin(sequence, KvLoads::When::kArrival, has_twin);
    return begun == KvLoads::Begun::kLoads ? sequence : nullptr;
  }
  std::vector<uint64_t> Forgotten() {
    v1::StepPlan plan;
    loads.TakeForgotten(plan);
    return {plan.forgotten_fetches().begin(), plan.forgotten_fetches().end()};
  }

 private:
  static std::chrono::steady_clock::time_point Now() { return {}; }

  Tenant tenant_{Account{}, 0};
  KvBlocks kv_;
  std::vector<std::unique_ptr<Sequence>> sequences_;

 public:
  KvLoads loads;
};

TEST_CASE("A fetch goes out once, and its answer says what the stages hold") {
  LoadsFixture fixture(StoreConfig(64));
  Sequence* const one = fixture.Begin(fixture.Make(1, 100));
  REQUIRE(one != nullptr);
  const auto fetches = fixture.loads.TakeFetches();
  REQUIRE(fetches.size() == 1);
  CHECK(fetches[0]->keys_size() == 6);
  CHECK(fixture.loads.TakeFetches().empty());
  CHECK(fixture.loads.Arrive(AnswerOf(fetches[0]->id() + 1, 6)).empty());
  CHECK(fixture.loads.Arrive(AnswerOf(fetches[0]->id(), 4)) == std::vector<Sequence*>{one});
  CHECK(fixture.loads.Arrive(AnswerOf(fetches[0]->id(), 4)).empty());
  CHECK(fixture.loads.Of(*one).first == 0);
  CHECK(fixture.loads.Of(*one).end == 4);
  CHECK_FALSE(fixture.loads.has_forgotten());
  fixture.loads.Forget(one->fetch);
  CHECK(one->fetch == 0);
  CHECK(fixture.loads.Of(*one).fetch == 0);
  CHECK(fixture.Forgotten() == std::vector<uint64_t>{fetches[0]->id()});
  CHECK_FALSE(fixture.loads.has_forgotten());
}

TEST_CASE("An answer of more blocks than were asked for counts as all of them") {
  LoadsFixture fixture(StoreConfig(64));
  Sequence* const one = fixture.Begin(fixture.Make(1, 100));
  fixture.loads.Arrive(AnswerOf(one->fetch, 4'000'000'000));
  CHECK(fixture.loads.Of(*one).end == 6);
}

TEST_CASE("A fetch that brought nothing, or that nobody waits for, is forgotten at its answer") {
  LoadsFixture fixture(StoreConfig(64));
  Sequence* const none = fixture.Begin(fixture.Make(1, 100));
  Sequence* const gone = fixture.Begin(fixture.Make(2, 100));
  const uint64_t of_none = none->fetch, of_gone = gone->fetch;
  fixture.loads.Leave(gone);
  CHECK(fixture.Forgotten().empty());  // a stage may not know of it yet
  CHECK(fixture.loads.Arrive(AnswerOf(of_none, 0)) == std::vector<Sequence*>{none});
  CHECK(none->fetch == 0);
  CHECK(fixture.loads.Arrive(AnswerOf(of_gone, 6)).empty());
  CHECK(fixture.Forgotten() == std::vector<uint64_t>{of_none, of_gone});
}

TEST_CASE("The choices of a request wait for one fetch, which is forgotten for all") {
  LoadsFixture fixture(StoreConfig(64));
  std::vector<Sequence*> choices;
  for (int i = 0; i < 3; ++i) {
    choices.push_back(fixture.Begin(fixture.Make(1, 100), /*has_twin=*/i > 0));
    REQUIRE(choices.back() != nullptr);
  }
  Sequence* const other = fixture.Begin(fixture.Make(2, 100), /*has_twin=*/true);
  CHECK(fixture.loads.TakeFetches().size() == 2);
  CHECK(other->fetch != choices[0]->fetch);
  fixture.loads.Leave(choices[1]);
  CHECK(fixture.loads.Arrive(AnswerOf(choices[0]->fetch, 6)) ==
        std::vector<Sequence*>{choices[0], choices[2]});
  fixture.loads.Leave(choices[0]);
  CHECK(fixture.Forgotten().empty());
  const uint64_t fetch = choices[2]->fetch;
  fixture.loads.Forget(fetch);
  CHECK(choices[2]->fetch == 0);
  CHECK(fixture.Forgotten() == std::vector<uint64_t>{fetch});
}

TEST_CASE("Choices with another salt have a fetch of their own") {
  LoadsFixture fixture(StoreConfig(64));
  Sequence* const one = fixture.Begin(fixture.Make(1, 100));
  auto request = MakeRequest(1, 100, 4);
  request->cache_salt = "b";
  Sequence* const two = fixture.Begin(fixture.Make(std::move(request)), /*has_twin=*/true);
  CHECK(one->fetch != two->fetch);
}

TEST_CASE("What is too short for a fetch does not load, nor does anything without a scope") {
  SchedulerConfig config = StoreConfig(64);
  LoadsFixture fixture(config);
  CHECK(fixture.Begin(fixture.Make(1, 64)) == nullptr);  // one of its 4 blocks stays
  CHECK(fixture.Begin(fixture.Make(2, 65)) != nullptr);
  config.kv_fetch_min_tokens = 1;
  LoadsFixture eager(config);
  CHECK(eager.Begin(eager.Make(1, 16)) == nullptr);
  CHECK(eager.Begin(eager.Make(1, 17)) != nullptr);
  config.kv_scope.clear();
  LoadsFixture off(config);
  CHECK(off.Begin(off.Make(1, 100)) == nullptr);
}

TEST_CASE("Only so many fetches are unanswered, and hold only so many blocks") {
  LoadsFixture many(StoreConfig(10'000));
  Sequence* first = nullptr;
  for (size_t i = 0; i < KvLoads::kMostLoads; ++i) {
    Sequence* const one = many.Begin(many.Make(i + 1, 100));
    REQUIRE(one != nullptr);
    if (i == 0) first = one;
  }
  CHECK(many.Begin(many.Make(1000, 100)) == nullptr);
  many.loads.Arrive(AnswerOf(first->fetch, 6));
  CHECK(many.Begin(many.Make(1001, 100)) != nullptr);

  LoadsFixture large(StoreConfig(16));
  Sequence* const one = large.Begin(large.Make(1, 200));  // 12 blocks
  CHECK(large.Begin(large.Make(2, 100)) == nullptr);
  large.loads.Arrive(AnswerOf(one->fetch, 10));
  CHECK(large.Begin(large.Make(3, 100)) != nullptr);  // 6 more
  CHECK(large.Begin(large.Make(4, 100)) == nullptr);
  large.loads.Leave(one);
  CHECK(large.Begin(large.Make(5, 100)) != nullptr);
}

TEST_CASE("A sequence whose turn has come loads although those behind it hold much") {
  LoadsFixture fixture(StoreConfig(16));
  const auto in_turn = [&](SequenceId id, int n_prompt) {
    return fixture.loads.Begin(fixture.Make(id, n_prompt), KvLoads::When::kTurn);
  };
  CHECK(fixture.Begin(fixture.Make(1, 200)) != nullptr);  // 12 blocks
  CHECK(fixture.Begin(fixture.Make(2, 100)) == nullptr);  // 6
  CHECK(in_turn(3, 100) == KvLoads::Begun::kLoads);
  CHECK(in_turn(4, 200) == KvLoads::Begun::kLoads);
  CHECK(in_turn(5, 100) == KvLoads::Begun::kBusy);
}

TEST_CASE("A loss ends all fetches, and no late answer counts") {
  LoadsFixture fixture(StoreConfig(64));
  Sequence* const there = fixture.Begin(fixture.Make(1, 100));
  Sequence* const one = fixture.Begin(fixture.Make(2, 100));
  Sequence* const twin = fixture.Begin(fixture.Make(2, 100), /*has_twin=*/true);
  fixture.loads.Arrive(AnswerOf(there->fetch, 6));
  const uint64_t late = one->fetch;
  CHECK(fixture.loads.Close() == std::vector<std::vector<Sequence*>>{{one, twin}});
  for (const Sequence* sequence : {there, one, twin}) CHECK(sequence->fetch == 0);
  CHECK(fixture.loads.TakeFetches().empty());
  CHECK(fixture.Forgotten().empty());
  CHECK(fixture.Begin(fixture.Make(3, 100)) == nullptr);
  fixture.loads.Open();
  Sequence* const next = fixture.Begin(fixture.Make(4, 100));
  REQUIRE(next != nullptr);
  CHECK(next->fetch != late);
  CHECK(fixture.loads.Arrive(AnswerOf(late, 6)).empty());
}

}  // namespace
}  // namespace stagecoach::router
