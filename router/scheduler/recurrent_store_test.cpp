// How sequences of a model with recurrent layers load states from the KV store, with the blocks
// before them. A StrictStage checks that every row finds the state of the tokens before it.
#include <algorithm>
#include <vector>

#include "common/kv_block.h"
#include "router/scheduler/testing/core_pipeline.h"

namespace stagecoach::router {
namespace {

SchedulerConfig StoreConfig(uint64_t n_blocks, uint32_t n_saved) {
  SchedulerConfig config = SmallConfig(/*n_stages=*/2, n_blocks);
  config.is_recurrent = true;
  config.n_states = static_cast<uint64_t>(config.max_sequences) + n_saved;
  config.kv_scope = "model";
  return config;
}

// A request for the first n_common of these tokens, and for others after them.
std::unique_ptr<SequenceRequest> After(SequenceId id, std::span<const int32_t> tokens,
                                       size_t n_common, int n_prompt) {
  auto request = MakeRequest(id, n_prompt, 4);
  auto prompt = *request->prompt;
  std::copy_n(tokens.begin(), n_common, prompt.begin());
  request->prompt = std::make_shared<const std::vector<int32_t>>(std::move(prompt));
  return request;
}

// All tokens of a request and its answer.
std::vector<int32_t> Turn(const SequenceRequest& request) {
  std::vector<int32_t> tokens = *request.prompt;
  const std::vector<int32_t> answer = TokensAlone(request, 256);
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  return tokens;
}

std::vector<uint32_t> StatesOf(const FakeKvStore& store) {
  std::vector<uint32_t> positions;
  for (const auto& [key, stored] : store) {
    if (stored.state) positions.push_back((stored.index + 1) * kBlockTokens);
  }
  std::ranges::sort(positions);
  return positions;
}

uint32_t NCached(const std::shared_ptr<RecordingSink>& sink) {
  return sink->record().times.n_cached_tokens;
}

TEST_CASE("The store gets the states at the end of prompt and turn, if they are not close") {
  FakeKvStore store;
  CorePipeline pipeline(StoreConfig(64, 8), {}, &store);
  pipeline.Submit(MakeRequest(1, 40, 100));
  pipeline.RunToEnd();
  CHECK(StatesOf(store) == std::vector<uint32_t>{128});
  pipeline.Submit(MakeRequest(2, 100, 100));
  pipeline.RunToEnd();
  CHECK(StatesOf(store) == std::vector<uint32_t>{96, 128, 192});
  // The answer of 30 tokens ends close to the prompt.
  pipeline.Submit(MakeRequest(3, 150, 30));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(StatesOf(store) == std::vector<uint32_t>{96, 128, 144, 192});
}

TEST_CASE("A sequence goes on from the last state that the store has before its tokens differ") {
  FakeKvStore store;
  const auto first = MakeRequest(1, 100, 100);
  const std::vector<int32_t> tokens = Turn(*first);
  CorePipeline before(StoreConfig(64, 8), {}, &store);
  before.Submit(std::make_unique<SequenceRequest>(*first));
  before.RunToEnd();
  CorePipeline pipeline(StoreConfig(64, 8), {}, &store);
  const auto next_turn = pipeline.Submit(After(2, tokens, 200, 220));
  pipeline.RunToEnd();
  const auto other_answer = pipeline.Submit(After(3, tokens, 150, 220));
  pipeline.RunToEnd();
  const auto other_prompt = pipeline.Submit(After(4, tokens, 80, 220));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(next_turn) == 192);
  CHECK(next_turn->record().times.stored.store() == 192);
  CHECK(NCached(other_answer) == 96);
  CHECK(NCached(other_prompt) == 0);
  // What came from the store is not saved again.
  for (const v1::StepPlan& plan : pipeline.plans) {
    for (const v1::KvSave& save : plan.saves()) CHECK(save.tokens(0) != tokens[0]);
  }
}

TEST_CASE("A restored state is in the prefix cache") {
  FakeKvStore store;
  CorePipeline before(StoreConfig(64, 8), {}, &store);
  before.Submit(MakeRequest(1, 100, 4));
  before.RunToEnd();
  CorePipeline pipeline(StoreConfig(64, 8), {}, &store);
  pipeline.Submit(MakeRequest(1, 100, 4));
  pipeline.RunToEnd();
  store.clear();
  const auto same = pipeline.Submit(After(2, *MakeRequest(1, 100, 4)->prompt, 100, 110));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(same) == 96);
  CHECK(same->record().times.stored.store() == 0);
}

TEST_CASE("Blocks without a state, or without a place for it, are computed") {
  FakeKvStore store;
  CorePipeline before(StoreConfig(64, 8), {}, &store);
  before.Submit(MakeRequest(1, 100, 4));
  before.RunToEnd();
  uint32_t n_saved = 8;
  SECTION("no state") {
    for (auto& [key, stored] : store) stored.state.reset();
  }
  SECTION("no place") { n_saved = 0; }
  CorePipeline pipeline(StoreConfig(64, n_saved), {}, &store);
  const auto same = pipeline.Submit(MakeRequest(1, 100, 4));
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(NCached(same) == 0);
}

TEST_CASE("A sequence that has lost its blocks with a stage goes on from the end of its prompt") {
  FakeKvStore store;
  CorePipeline pipeline(StoreConfig(64, 8), {}, &store);
  const auto sink = pipeline.Submit(MakeRequest(1, 100, 60));
  while (sink->record().tokens.size() < 30) {
    pipeline.AnswerFetches();
    pipeline.Fill();
    pipeline.Turn(1);
  }
  const size_t n_before = pipeline.plans.size();
  pipeline.Interrupt(1);
  pipeline.Resume(/*kv_kept=*/false);
  pipeline.RunToEnd();
  pipeline.RequireAllAsAlone();
  CHECK(pipeline.plans[n_before].slots(0).start() == 96);
  CHECK(pipeline.plans[n_before].registrations(0).from_state() > 0);
}

}  // namespace
}  // namespace stagecoach::router
