#include "worker/service/memory_profile.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/temp_dir.h"
#include "worker/stage/testing/late_ops.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr int32_t kMaxModelLen = 64;

constexpr const char* kConfig =
    R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 8, "max_position_embeddings": 64, "torch_dtype": "float32"})";

v1::LoadConfig DummyConfig(int32_t max_batched_tokens, int32_t max_sequences,
                           int32_t max_model_len) {
  v1::LoadConfig config;
  config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  config.set_max_batched_tokens(max_batched_tokens);
  config.set_max_sequences(max_sequences);
  config.set_max_model_len(max_model_len);
  return config;
}

// The limits of a device with its own memory allow a step larger than one sequence may be, and
// larger than all sequences together may be.
TEST_CASE("The largest steps stay within max_model_len") {
  const int32_t max_sequences = GENERATE(1, 3, 16);
  const int32_t max_batched_tokens = GENERATE(48, 100, 512);
  CAPTURE(max_sequences, max_batched_tokens);
  TempDir dir;
  dir.Write("config.json", kConfig);
  const auto ops = MakeLateOps();
  v1::LoadConfig config = DummyConfig(max_batched_tokens, max_sequences, kMaxModelLen);
  config.set_memory_fraction(0.99F);
  const auto model = StageModel::Load(
      {.model_dir = dir.path(), .n_layers = 1, .is_first = true, .is_last = true, .config = config},
      ops.get(), nullptr);
  REQUIRE(model.ok());
  const auto report = ProfileMemory(**model, *ops, /*is_last=*/true, {.config = config});
  INFO(report.status());
  REQUIRE(report.ok());
}

struct Sizes {
  int32_t n_layers = 1, vocab_size = 50, max_batched_tokens = 4, max_model_len = 64;

  v1::LoadConfig Config() const {
    return DummyConfig(max_batched_tokens, /*max_sequences=*/1, max_model_len);
  }
};

// Loads on a device of 1 GiB, half of which is free.
absl::StatusOr<std::unique_ptr<StageModel>> Load(const Sizes& sizes, kernels::Ops* ops) {
  TempDir dir;
  dir.Write("config.json", fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "vocab_size": {},
      "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": {}, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": {}, "torch_dtype": "float32"}})",
                                       sizes.vocab_size, sizes.n_layers, sizes.max_model_len));
  return StageModel::Load({.model_dir = dir.path(),
                           .n_layers = sizes.n_layers,
                           .is_first = true,
                           .is_last = true,
                           .config = sizes.Config()},
                          ops, nullptr);
}

// The KV cache of the longest sequence takes 64 MiB per layer.
absl::StatusOr<v1::MemoryReport> Profile(int32_t n_layers, float memory_fraction) {
  const Sizes sizes{.n_layers = n_layers, .max_model_len = 1 << 20};
  const auto ops = MakeLateOps();
  const auto model = Load(sizes, ops.get());
  REQUIRE(model.ok());
  v1::LoadConfig config = sizes.Config();
  config.set_memory_fraction(memory_fraction);
  return ProfileMemory(**model, *ops, /*is_last=*/true, {.config = config});
}

TEST_CASE("If --memory-fraction is too small, the error names one that fits the longest sequence") {
  const absl::Status refusal = Profile(1, 0.5F).status();
  REQUIRE(absl::IsResourceExhausted(refusal));
  // Half of the memory is taken, and 64 MiB are reserved.
  CHECK_THAT(std::string(refusal.message()), ContainsSubstring("--memory-fraction 0.625"));
  const auto report = Profile(1, 0.625F);
  REQUIRE(report.ok());
  CHECK(report->kv_bytes() == uint64_t{64} << 20);
  CHECK(report->device_bytes() == uint64_t{1} << 30);
  CHECK(report->taken_bytes() == uint64_t{576} << 20);

  CHECK_THAT(std::string(Profile(8, 0.5F).status().message()),
             ContainsSubstring("a sequence of 1048576 tokens needs 512.0 MiB") &&
                 ContainsSubstring("lower --max-model-len") &&
                 !ContainsSubstring("needs --memory-fraction"));
}

TEST_CASE("Too large allocations are refused in advance, and the error says what to change") {
  const auto ops = MakeLateOps();
  const auto refusal = [&](const Sizes& sizes) {
    const absl::Status status = Load(sizes, ops.get()).status();
    CHECK(absl::IsResourceExhausted(status));
    return std::string(status.message());
  };
  // The embedding and lm_head alone exceed the free memory.
  CHECK_THAT(refusal({.vocab_size = 1 << 22}),
             ContainsSubstring("the stage's weights take 512.0 MiB") &&
                 ContainsSubstring("spread the model over more stages"));
  CHECK_THAT(refusal({.max_batched_tokens = 1 << 23}),
             ContainsSubstring("buffers for a step take") &&
                 ContainsSubstring("lower --max-batched-tokens"));
}

}  // namespace
}  // namespace stagecoach::worker
