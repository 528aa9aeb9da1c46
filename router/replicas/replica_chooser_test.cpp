#include "router/replicas/replica_chooser.h"

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

ReplicaChooser Chooser(size_t n_replicas, uint64_t n_blocks = 1000) {
  SchedulerConfig config;
  config.kv_groups = {{.window = 0, .n_blocks = n_blocks}};
  return ReplicaChooser(std::vector<SchedulerConfig>(n_replicas, config));
}

// A prompt of its own: ids that differ give prompts that share no block.
std::unique_ptr<SequenceRequest> Prompt(SequenceId id, int n_tokens = 320) {
  return MakeRequest(id, n_tokens, 10);
}

TEST_CASE("New prompts go to the replica with the least work, and to each in turn") {
  ReplicaChooser chooser = Chooser(3);
  for (SequenceId id = 1; id <= 9; ++id) {
    CHECK(chooser.Choose(*Prompt(id), 1).replica == (id - 1) % 3);
  }
}

TEST_CASE("Without work, new prompts go to the replica that was given least") {
  ReplicaChooser chooser = Chooser(2);
  for (SequenceId id = 1; id <= 6; ++id) {
    const auto choice = chooser.Choose(*Prompt(id), 1);
    CHECK(choice.replica == (id - 1) % 2);
    chooser.Prefilled(choice.replica, choice.n_to_prefill);
    chooser.Left(choice.replica);
  }
}

TEST_CASE("A prompt goes where its beginning was computed") {
  ReplicaChooser chooser = Chooser(2);
  chooser.Choose(*Prompt(1), 1);
  const auto second = chooser.Choose(*Prompt(2), 1);
  CHECK(second.replica == 1);
  chooser.Prefilled(1, second.n_to_prefill);
  auto turn = Prompt(2, 400);
  const auto choice = chooser.Choose(*turn, 1);
  CHECK(choice.replica == 1);
  CHECK(choice.n_to_prefill == 400 - 304);  // the last token of the first turn was computed
  turn->cache_salt = "tenant";
  CHECK(chooser.Choose(*turn, 1).n_to_prefill == 400);
}

TEST_CASE("A prefix does not hold a request at a replica that is busier than the prefix is worth") {
  ReplicaChooser chooser = Chooser(2);
  size_t n_first = 0;
  for (int i = 0; i < 20; ++i) {
    const auto choice = chooser.Choose(*Prompt(1, 641), 1);
    chooser.Prefilled(choice.replica, choice.n_to_prefill);
    n_first += choice.replica == 0 ? 1 : 0;
    if (i == 9) CHECK(n_first == 10);  // 10 sequences are worth the 640 tokens of the prefix
  }
  CHECK(n_first < 20);
}

TEST_CASE("Prompts whose log-probabilities are wanted have no use for a prefix") {
  ReplicaChooser chooser = Chooser(2);
  chooser.Choose(*Prompt(1), 1);
  auto request = Prompt(1);
  request->sampling.set_n_prompt_logprobs(0);
  const auto choice = chooser.Choose(*request, 1);
  CHECK(choice.replica == 1);
  CHECK(choice.n_to_prefill == 320);
}

TEST_CASE("A lost or stalled replica gets requests only if no other works") {
  ReplicaChooser chooser = Chooser(2);
  chooser.Choose(*Prompt(1), 1);
  chooser.SetState(0, PipelineState::kLost);
  for (SequenceId id = 2; id <= 5; ++id) CHECK(chooser.Choose(*Prompt(id), 1).replica == 1);
  chooser.SetStalled(1, true);
  CHECK(chooser.Choose(*Prompt(6), 1).replica == 1);
  chooser.SetState(1, PipelineState::kGone);
  CHECK(chooser.Choose(*Prompt(7), 1).replica == 0);
  chooser.SetState(0, PipelineState::kWorks);
  // Its cache is empty.
  CHECK(chooser.Choose(*Prompt(1), 1).n_to_prefill == 320);
}

TEST_CASE("Sequences leave a lost replica for one that works, or one that may work again") {
  ReplicaChooser chooser = Chooser(2);
  CHECK(!chooser.ShouldLeave(0));
  chooser.SetState(0, PipelineState::kLost);
  CHECK(chooser.ShouldLeave(0));
  CHECK(!chooser.ShouldLeave(1));
  chooser.SetState(1, PipelineState::kLost);
  CHECK(!chooser.ShouldLeave(0));
  CHECK(!chooser.ShouldLeave(1));
  chooser.SetState(0, PipelineState::kGone);
  CHECK(chooser.ShouldLeave(0));
  CHECK(!chooser.ShouldLeave(1));
  chooser.SetState(1, PipelineState::kGone);
  CHECK(!chooser.ShouldLeave(0));
}

TEST_CASE("As many prefixes as all caches hold together stay where they are") {
  ReplicaChooser chooser = Chooser(2, 40 * 20);
  std::vector<size_t> place(65);
  const auto run = [&](SequenceId id) {
    const auto choice = chooser.Choose(*Prompt(id, 321), 1);
    chooser.Prefilled(choice.replica, choice.n_to_prefill);
    chooser.Left(choice.replica);
    return choice;
  };
  for (SequenceId id = 1; id <= 64; ++id) place[id] = run(id).replica;
  for (int round = 0; round < 3; ++round) {
    for (SequenceId id = 1; id <= 64; ++id) {
      const auto choice = run(id * 29 % 65);
      CHECK(choice.replica == place[id * 29 % 65]);
      CHECK(choice.n_to_prefill == 1);
    }
  }
}

TEST_CASE("A replica that drains gets requests only if all others are lost for good") {
  using Use = ReplicaChooser::Use;
  ReplicaChooser chooser = Chooser(2);
  chooser.SetUse(0, Use::kDraining);
  CHECK(!chooser.HasOtherThatWorks(1));
  CHECK(!chooser.ShouldLeave(0));
  chooser.SetState(1, PipelineState::kLost);
  CHECK(!chooser.ShouldLeave(0));
  CHECK(!chooser.ShouldLeave(1));
  CHECK(chooser.HasOtherLeft(0));
  CHECK(chooser.Choose(*MakeRequest(1, 40, 1), 1).replica == 1);
  chooser.SetState(1, PipelineState::kGone);
  CHECK(!chooser.HasOtherLeft(0));
  CHECK(chooser.ShouldLeave(1));
  CHECK(chooser.Choose(*MakeRequest(2, 40, 1), 1).replica == 0);
}

TEST_CASE("An added replica is closed until it may be used") {
  using Use = ReplicaChooser::Use;
  ReplicaChooser chooser = Chooser(1);
  chooser.Add({.kv_groups = {{.window = 0, .n_blocks = 1000}}});
  chooser.SetState(0, PipelineState::kGone);
  CHECK(!chooser.ShouldLeave(0));
  chooser.SetUse(1, Use::kOpen);
  CHECK(chooser.ShouldLeave(0));
  CHECK(chooser.Choose(*MakeRequest(1, 40, 1), 1).replica == 1);
}

}  // namespace
}  // namespace stagecoach::router
