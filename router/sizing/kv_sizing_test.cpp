#include "router/sizing/kv_sizing.h"

#include <random>

#include "catch2/catch_test_macros.hpp"
#include "common/kv_block.h"

namespace stagecoach::router {
namespace {

constexpr KvSizingLimits kLimits = {
    .max_sequences = 4, .max_batched_tokens = 48, .max_prefill_chunk = 32, .max_model_len = 1024};

KvPlan Size(const std::vector<KvGroupSpec>& groups, const std::vector<StageKvMemory>& stages,
            const KvSizingLimits& limits = kLimits) {
  const auto plan = SizeKv(groups, stages, limits);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

std::string Refusal(const std::vector<KvGroupSpec>& groups,
                    const std::vector<StageKvMemory>& stages, const KvSizingLimits& limits) {
  const auto plan = SizeKv(groups, stages, limits);
  REQUIRE(absl::IsResourceExhausted(plan.status()));
  return std::string(plan.status().message());
}

TEST_CASE("the stage with the least memory decides") {
  const KvPlan plan = Size({{0}}, {{"stage 0", 100'000, {100}}, {"stage 1", 50'050, {100}}});
  CHECK(plan.n_blocks == std::vector<uint64_t>{500});
  CHECK(plan.kv_blocks == 500);
  CHECK(plan.max_model_len == 1024);
}

TEST_CASE("the number of blocks grows with the number of stages") {
  // 12 layers with 10 bytes per block each.
  uint64_t last = 0;
  for (const int n_stages : {1, 2, 4}) {
    std::vector<StageKvMemory> stages(n_stages, {"stage", 120'000, {120u / n_stages}});
    const uint64_t n = Size({{0}}, stages).kv_blocks;
    CHECK(n == 1000u * n_stages);
    CHECK(n > last);
    last = n;
  }
}

TEST_CASE("states of recurrent layers take part of the memory") {
  std::vector<StageKvMemory> stages = {{"stage 0", 100'000, {100}}, {"stage 1", 100'000, {100}}};
  stages[1].state_bytes = 1000;
  KvSizingLimits limits = kLimits;
  KvPlan plan = Size({{0}}, stages, limits);
  CHECK(plan.max_sequences == 4);
  // One state for each sequence, one saved for it, and one for every 128 blocks.
  CHECK(plan.n_states == 8 + 7);
  CHECK(plan.kv_blocks == 850);
  CHECK(plan.kv_blocks * 100 + plan.n_states * 1000 <= 100'000);
  limits.saves_states = false;
  plan = Size({{0}}, stages, limits);
  CHECK(plan.n_states == 4);
  CHECK(plan.kv_blocks == 960);
  limits.saves_states = true;
  limits.max_sequences = 256;
  plan = Size({{0}}, stages, limits);
  // States of sequences, and those saved for them, take half of the memory.
  CHECK(plan.max_sequences == 25);
  CHECK(plan.n_states == 50 + 4);
  stages[1].state_bytes = 0;
  plan = Size({{0}}, stages, limits);
  CHECK(plan.max_sequences == 256);
  CHECK(plan.n_states == 0);
}

TEST_CASE("a window group gets what all sequences can hold, the full group gets the rest") {
  // 4 sequences * (64 / 16 + 2) blocks, plus 8 for chunks: max(48 / 16, ceil((64 + 32) / 16) + 2).
  const KvPlan plan = Size({{64}, {0}}, {{"stage 0", 100'000, {100, 50}}});
  CHECK(plan.n_blocks == std::vector<uint64_t>{32, (100'000 - 3200) / 50});
  CHECK(plan.kv_blocks == plan.n_blocks[1]);
}

TEST_CASE("no group has more blocks than the group with the longest window") {
  KvSizingLimits limits = kLimits;
  limits.max_model_len = 128;
  const KvPlan plan = Size({{64}, {0}}, {{"stage 0", 1500, {50, 50}}}, limits);
  CHECK(plan.n_blocks == std::vector<uint64_t>{15, 15});
}

TEST_CASE("large steps do not add window blocks for every sequence") {
  const KvSizingLimits limits = {.max_sequences = 1024,
                                 .max_batched_tokens = 8192,
                                 .max_prefill_chunk = 8192,
                                 .max_model_len = 131072};
  const KvPlan plan = Size({{0}, {1024}}, {{"stage", 10'000'000, {10, 50}}}, limits);
  CHECK(plan.n_blocks[1] == 1024 * (1024 / 16 + 2) + (1024 + 8192) / 16 + 2);
}

TEST_CASE("a group without layers on a stage costs no memory there") {
  const KvPlan plan =
      Size({{0}, {64}}, {{"stage 0", 10'000, {0, 50}}, {"stage 1", 10'000, {100, 0}}});
  CHECK(plan.n_blocks == std::vector<uint64_t>{100, 32});
}

TEST_CASE("with windows only, the longest window decides and the length does not matter") {
  KvSizingLimits limits = kLimits;
  limits.max_model_len = 100'000;
  const KvPlan plan = Size({{128}, {64}}, {{"stage 0", 10'000, {100, 100}}}, limits);
  CHECK(plan.n_blocks == std::vector<uint64_t>{68, 32});
  CHECK(plan.max_model_len == 100'000);
}

TEST_CASE("a max_model_len from config.json is lowered to fit, a user's value is refused") {
  KvSizingLimits limits = kLimits;
  const std::vector<StageKvMemory> stages = {{"stage 0 (a:1)", 1000, {10}},
                                             {"stage 1 (b:2)", 319, {10}}};
  CHECK(Size({{0}}, stages, limits).max_model_len == 31 * 16);
  limits.max_model_len_is_fixed = true;
  const std::string message = Refusal({{0}}, stages, limits);
  INFO(message);
  CHECK(message.find("needs 64 KV blocks") != std::string::npos);
  CHECK(message.find("stage 1 (b:2)") != std::string::npos);
  CHECK(message.find("room for 31") != std::string::npos);
  CHECK(message.find("raise --kv-memory to 640,") != std::string::npos);
  limits.max_model_len = 31 * 16;
  CHECK(Size({{0}}, stages, limits).max_model_len == 31 * 16);
}

TEST_CASE("if --memory-fraction is too small, the error names a sufficient one") {
  KvSizingLimits limits = kLimits;
  limits.max_model_len_is_fixed = true;
  std::vector<StageKvMemory> stages = {{"stage 0", 1000, {10}, 4000, 1001},
                                       {"stage 1", 400, {10}, 2000, 499}};
  CHECK(Refusal({{0}}, stages, limits).find("raise --memory-fraction to 0.570,") !=
        std::string::npos);
  stages[1].kv_bytes = 570 * 2000 / 1000 - 499;
  CHECK(Size({{0}}, stages, limits).max_model_len == limits.max_model_len);
  // No fraction is large enough.
  stages[1] = {"stage 1", 400, {10}, 1000, 499};
  CHECK(Refusal({{0}}, stages, limits).find("--memory-fraction") == std::string::npos);
}

TEST_CASE("the number of blocks is capped at the maximum of a stage") {
  CHECK(Size({{0}}, {{"stage", kMaxKvBlocks * 20, {10}}}).kv_blocks == kMaxKvBlocks);
}

TEST_CASE("the error names a stage without memory for one block") {
  const std::string message =
      Refusal({{0}}, {{"stage 0 (a:1)", 1000, {10}}, {"stage 1 (b:2)", 9, {10}}}, kLimits);
  CHECK(message.starts_with("stage 1 (b:2): "));
}

TEST_CASE("the pool is the largest that fits, for random sizes") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<KvGroupSpec> groups = {{0}};
    for (int g = random() % 3; g > 0; --g) groups.push_back({int32_t(random() % 500 + 1)});
    std::vector<StageKvMemory> stages(random() % 4 + 1);
    for (StageKvMemory& stage : stages) {
      stage.kv_bytes = random() % 1'000'000 + 5000;
      for (size_t g = 0; g < groups.size(); ++g) stage.block_bytes.push_back(random() % 1000 + 1);
    }
    const KvPlan plan = Size(groups, stages);
    const auto fits = [&](uint64_t n) {
      for (const StageKvMemory& stage : stages) {
        uint64_t bytes = 0;
        for (size_t g = 0; g < groups.size(); ++g) {
          const auto window = uint64_t(groups[g].window.size);
          const uint64_t chunks = std::max<uint64_t>(48 / 16, (window + 32 + 15) / 16 + 2);
          const uint64_t by_window = 4 * ((window + 15) / 16 + 2) + chunks;
          bytes += stage.block_bytes[g] * (g == 0 ? n : std::min(n, by_window));
        }
        if (bytes > stage.kv_bytes) return false;
      }
      return true;
    };
    REQUIRE(fits(plan.kv_blocks));
    REQUIRE_FALSE(fits(plan.kv_blocks + 1));
  }
}

}  // namespace
}  // namespace stagecoach::router
