#include "worker/stage/slot_table.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "common/left_behind.h"
#include "stagecoach/v1/step.pb.h"
#include "worker/stage/batch_builder.h"

namespace stagecoach::worker {
namespace {

StageLimits Limits() {
  v1::LoadConfig config;
  config.set_max_batched_tokens(40);
  config.set_max_sequences(3);
  config.set_max_model_len(64);
  return {.config = config, .vocab_size = 100, .n_kv_groups = 2};
}

// An encoded plan and a view into its bytes.
struct Meta {
  explicit Meta(const v1::StepPlan& plan) {
    REQUIRE(EncodeStepMeta(plan, 2, &bytes).ok());
    auto decoded = DecodeStepMeta(bytes);
    REQUIRE(decoded.ok());
    view = *decoded;
  }
  std::string bytes;
  StepMetaView view;
};

void Apply(SlotTable& table, const Meta& meta) {
  auto sampling = ParseSampling(meta.view);
  REQUIRE(sampling.ok());
  table.Apply(meta.view, *sampling);
}
void Apply(SlotTable& table, const v1::StepPlan& plan) { Apply(table, Meta(plan)); }

v1::StepPlan Plan(uint64_t step) {
  v1::StepPlan plan;
  plan.set_step(step);
  return plan;
}

v1::SlotRegistration* Register(v1::StepPlan& plan, uint32_t slot, std::vector<int32_t> tokens,
                               uint32_t n_prompt) {
  auto* registration = plan.add_registrations();
  registration->set_slot(slot);
  registration->mutable_tokens()->Add(tokens.begin(), tokens.end());
  registration->set_n_prompt(n_prompt);
  registration->mutable_sampling()->set_repetition_penalty(1);
  return registration;
}

void Compute(v1::StepPlan& plan, uint32_t slot, uint32_t start, uint32_t n_tokens,
             std::vector<uint32_t> full, std::vector<uint32_t> window) {
  auto* delta = plan.add_slots();
  delta->set_slot(slot);
  delta->set_start(start);
  delta->set_n_tokens(n_tokens);
  auto* ids = delta->add_new_blocks()->mutable_ids();
  ids->Add(full.begin(), full.end());
  ids = delta->add_new_blocks()->mutable_ids();
  ids->Add(window.begin(), window.end());
}

template <typename T>
std::vector<T> ToVector(std::span<const T> span) {
  return {span.begin(), span.end()};
}

using Ids = std::vector<int32_t>;

TEST_CASE("penalty counts are rebuilt from a registration and follow sampled tokens") {
  SlotTable table(Limits(), {.tokens = true, .sampling = true});
  v1::StepPlan plan = Plan(1);
  Register(plan, 1, {5, 3, 5, 9, 3, 3}, 3)->mutable_sampling()->set_presence_penalty(0.5f);
  Apply(table, plan);
  const auto counts = [&table] {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (const auto& c : table.sampling(1).counts) pairs.push_back({c.id, c.n_generated});
    return pairs;
  };
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  CHECK(counts() == Pairs{{3, 2}, {5, 0}, {9, 1}});
  REQUIRE(table.AcceptToken(1, 1, 5).ok());
  REQUIRE(table.AcceptToken(2, 1, 4).ok());
  CHECK(counts() == Pairs{{3, 2}, {4, 1}, {5, 1}, {9, 1}});
  CHECK(ToVector(table.tokens(1)) == Ids{5, 3, 5, 9, 3, 3, 5, 4});
}

TEST_CASE("without penalties nothing is counted") {
  SlotTable table(Limits(), {.tokens = true, .sampling = true});
  v1::StepPlan plan = Plan(1);
  Register(plan, 0, {1, 2}, 2);
  Apply(table, plan);
  REQUIRE(table.AcceptToken(1, 0, 5).ok());
  CHECK(table.sampling(0).counts.empty());
}

TEST_CASE("a token from before the slot's registration is ignored") {
  SlotTable table(Limits(), {.tokens = true});
  v1::StepPlan plan = Plan(3);
  Register(plan, 0, {1, 2}, 2);
  Apply(table, plan);
  CHECK(table.AcceptToken(2, 0, 50).value() == false);
  CHECK(table.tokens(0).size() == 2);
  CHECK(table.AcceptToken(3, 0, 51).value() == true);
  CHECK(table.tokens(0).back() == 51);

  plan = Plan(4);
  plan.add_release(0);
  Apply(table, plan);
  CHECK(table.AcceptToken(3, 0, 52).value() == false);
  CHECK(table.tokens(0).size() == 3);
  CHECK(table.n_in_use() == 0);
}

TEST_CASE("tokens that no stage can have sampled are errors") {
  SlotTable table(Limits(), {.tokens = true});
  CHECK(absl::IsInvalidArgument(table.AcceptToken(1, 3, 0).status()));
  CHECK(absl::IsInvalidArgument(table.AcceptToken(1, 0, 100).status()));
  CHECK(absl::IsInvalidArgument(table.AcceptToken(1, 0, -1).status()));
  v1::StepPlan plan = Plan(1);
  Register(plan, 0, Ids(64, 7), 64);
  Apply(table, plan);
  CHECK(table.AcceptToken(1, 0, 1).ok());
  CHECK(absl::IsInvalidArgument(table.AcceptToken(2, 0, 1).status()));
}

TEST_CASE("the batch has the rows and new blocks of every sequence, and known tokens") {
  SlotTable table(Limits(), {.tokens = true});
  BatchBuilder builder(Limits());
  v1::StepPlan plan = Plan(1);
  Ids long_prompt(18);
  for (int32_t i = 0; i < 18; ++i) long_prompt[i] = 40 + i;
  Register(plan, 2, long_prompt, 18);
  Register(plan, 0, {1, 2, 3}, 3);
  Compute(plan, 2, 0, 15, {4}, {7});
  Compute(plan, 0, 0, 3, {1}, {0});
  Meta first(plan);
  Apply(table, first);
  builder.Build(first.view, table);
  CHECK(builder.FillTokens(first.view, table, false) == 0);
  CHECK(builder.batch().n_tokens == 18);

  plan = Plan(2);
  Compute(plan, 2, 15, 3, {6}, {5});
  Compute(plan, 0, 3, 1, {}, {});
  Meta second(plan);
  Apply(table, second);
  builder.Build(second.view, table);
  // Slot 0's token has not arrived yet; the other slot's tokens have.
  const kernels::StepBatch& batch = builder.batch();
  CHECK(builder.FillTokens(second.view, table, true) == 0);
  CHECK(ToVector(batch.token_ids) == Ids{55, 56, 57, kernels::kSampledToken});
  CHECK(builder.FillTokens(second.view, table, false) == 1);
  REQUIRE(table.AcceptToken(1, 0, 77).ok());
  CHECK(builder.FillTokens(second.view, table, false) == 0);
  CHECK(ToVector(batch.token_ids) == Ids{55, 56, 57, 77});

  CHECK(batch.n_tokens == 4);
  REQUIRE(batch.seqs.size() == 2);
  CHECK(batch.seqs[0].slot == 2);
  CHECK(batch.seqs[0].position == 15);
  CHECK(batch.seqs[1].n_tokens == 1);
  CHECK(builder.row_start(1) == 3);
  std::vector<Ids> entries;
  for (const kernels::NewBlock& b : batch.new_blocks) {
    entries.push_back({b.group, b.slot, b.index, b.block});
  }
  CHECK(entries == std::vector<Ids>{{0, 2, 1, 6}, {1, 2, 1, 5}});
}

TEST_CASE("tables of ended epochs leave no memory behind") {
  // Each epoch's tables are made on another of gRPC's threads.
  constexpr int kSlots = 64, kTokens = 4000;  // 1 MB
  StageLimits limits = Limits();
  limits.config.set_max_sequences(kSlots);
  limits.config.set_max_model_len(kTokens);
  v1::StepPlan plan = Plan(1);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    Register(plan, slot, std::vector<int32_t>(kTokens, 1), kTokens);
  }
  const Meta meta(plan);
  CHECK(LeftBehind([&] {
          SlotTable table(limits, {.tokens = true, .sampling = true});
          Apply(table, meta);
        }) < 4'000'000);
}

}  // namespace
}  // namespace stagecoach::worker
