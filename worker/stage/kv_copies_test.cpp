#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "common/temp_dir.h"
#include "worker/stage/testing/toy_pipeline.h"

namespace stagecoach::worker {
namespace {

constexpr uint64_t kEpoch = 3;
constexpr uint32_t kPrompt = 60, kFullBlocks = 3;

std::vector<int32_t> Prompt() {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < kPrompt; ++i)
    tokens.push_back(static_cast<int32_t>((i * i + 3) % kToyVocab));
  return tokens;
}

std::string KeyOf(uint32_t block) { return std::string(15, 'k') + static_cast<char>('0' + block); }

// Computes the prompt from `start` on, whose blocks are base, base + 1, ... in group 0, and 63 -
// base, ... in group 1.
v1::StepPlan Prefill(uint64_t step, uint32_t start, uint32_t base) {
  v1::StepPlan plan;
  plan.set_epoch(kEpoch);
  plan.set_step(step);
  v1::SlotRegistration& registration = *plan.add_registrations();
  for (const int32_t token : Prompt()) registration.add_tokens(token);
  registration.set_n_prompt(kPrompt);
  *registration.mutable_sampling() = Greedy();
  v1::SlotDelta& delta = *plan.add_slots();
  delta.set_start(start);
  delta.set_n_tokens(kPrompt - start);
  delta.set_sample(true);
  v1::BlockIds& full = *delta.add_new_blocks();
  v1::BlockIds& window = *delta.add_new_blocks();
  for (uint32_t i = 0; i <= kFullBlocks; ++i) {
    full.add_ids(base + i);
    window.add_ids(63 - base - i);
  }
  return plan;
}

int32_t TokenOf(ToyPipeline& pipeline) {
  const auto result = pipeline.results().Next();
  REQUIRE(result.ok());
  REQUIRE(result->slots_size() == 1);
  return result->slots(0).token();
}

v1::KvFetch FetchOf(uint64_t id) {
  v1::KvFetch fetch;
  fetch.set_id(id);
  for (uint32_t i = 0; i < kFullBlocks; ++i) fetch.add_keys(KeyOf(i));
  for (uint32_t i = 0; i < kFullBlocks * 16; ++i) fetch.add_tokens(Prompt()[i]);
  return fetch;
}

TEST_CASE("blocks that one pipeline saves give another one, of any stages, the same token") {
  const int32_t n_savers = GENERATE(1, 2, 4), n_readers = GENERATE(1, 2, 4);
  const auto kind = GENERATE(ToyPipeline::Kind::kHost, ToyPipeline::Kind::kRunsAhead);
  const bool beside = GENERATE(false, true);
  TempDir dir;
  const std::string store = "dir:" + dir.path();
  int32_t expected = -1;
  {
    ToyPipeline saver(n_savers, kind);
    saver.ShareKv(store);
    saver.Start(kEpoch);
    REQUIRE(saver.first().Submit(Prefill(1, 0, 5)).ok());
    expected = TokenOf(saver);
    // The next step overwrites the blocks that it saves.
    v1::StepPlan plan = Prefill(2, 0, 5);
    plan.add_release(0);
    for (int32_t& token : *plan.mutable_registrations(0)->mutable_tokens())
      token = (token + 1) % kToyVocab;
    for (uint32_t i = 0; i < kFullBlocks; ++i) {
      v1::KvSave& save = *plan.add_saves();
      save.set_key(KeyOf(i));
      for (uint32_t t = 0; t < 16; ++t) save.add_tokens(Prompt()[16 * i + t]);
      save.add_blocks(5 + i);
      save.add_blocks(63 - 5 - i);
    }
    REQUIRE(saver.first().Submit(std::move(plan)).ok());
    TokenOf(saver);
    saver.ShareKv("");
  }
  ToyPipeline reader(n_readers, kind);
  reader.ShareKv(store);
  reader.Start(kEpoch);
  for (size_t s = 0; s < reader.size(); ++s) {
    reader.stage(s).Fetch(FetchOf(9));
    const v1::KvFetched fetched = reader.heard(s).NextFetched();
    CHECK(fetched.id() == 9);
    CHECK(fetched.n_blocks() == kFullBlocks);
  }
  v1::StepPlan plan = Prefill(beside ? 2 : 1, kFullBlocks * 16, 20);
  v1::StepPlan before;
  before.set_epoch(kEpoch);
  before.set_step(1);
  for (uint32_t i = 0; i < kFullBlocks; ++i) {
    v1::KvRestore& restore = *(beside ? before : plan).add_restores();
    restore.set_beside(beside);
    restore.set_fetch(9);
    restore.set_index(i);
    restore.add_blocks(20 + i);
    // Position 48 sees 24 positions, which begin in block 1.
    restore.add_blocks(i == 0 ? kNoKvBlock : 63 - 20 - i);
  }
  plan.add_forgotten_fetches(9);
  if (beside) REQUIRE(reader.first().Submit(std::move(before)).ok());
  REQUIRE(reader.first().Submit(std::move(plan)).ok());
  if (beside) REQUIRE(reader.results().Next().ok());
  CHECK(TokenOf(reader) == expected);
}

TEST_CASE("a step that restores what was not fetched ends the epoch") {
  TempDir dir;
  ToyPipeline pipeline(1);
  pipeline.ShareKv("dir:" + dir.path());
  pipeline.Start(kEpoch);
  v1::StepPlan plan = Prefill(1, 16, 0);
  v1::KvRestore& restore = *plan.add_restores();
  restore.set_fetch(1);
  restore.add_blocks(0);
  restore.add_blocks(63);
  REQUIRE(pipeline.first().Submit(std::move(plan)).ok());
  CHECK(absl::IsFailedPrecondition(pipeline.results().AwaitClosed()));
}

TEST_CASE("without a store, a fetch is answered with nothing, and copies end the epoch") {
  ToyPipeline pipeline(1);
  pipeline.Start(kEpoch);
  pipeline.first().Fetch(FetchOf(4));
  const v1::KvFetched fetched = pipeline.heard(0).NextFetched();
  CHECK(fetched.id() == 4);
  CHECK(fetched.n_blocks() == 0);
  v1::StepPlan plan = Prefill(1, 0, 0);
  plan.add_forgotten_fetches(4);
  REQUIRE(pipeline.first().Submit(std::move(plan)).ok());
  CHECK(absl::IsFailedPrecondition(pipeline.results().AwaitClosed()));
}

}  // namespace
}  // namespace stagecoach::worker
