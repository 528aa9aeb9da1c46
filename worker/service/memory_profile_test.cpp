#include "worker/service/memory_profile.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "common/temp_dir.h"
#include "worker/stage/testing/late_ops.h"

namespace stagecoach::worker {
namespace {

constexpr int32_t kMaxModelLen = 64;

constexpr const char* kConfig =
    R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 8, "max_position_embeddings": 64, "torch_dtype": "float32"})";

// Steps of a device with memory of its own hold more than one sequence may be long, and than all
// sequences together may be.
TEST_CASE("The largest steps keep to the model's length") {
  const int32_t max_sequences = GENERATE(1, 3, 16);
  const int32_t max_batched_tokens = GENERATE(48, 100, 512);
  CAPTURE(max_sequences, max_batched_tokens);
  TempDir dir;
  dir.Write("config.json", kConfig);
  const auto ops = MakeLateOps();
  const auto model = StageModel::Load({.model_dir = dir.path(),
                                       .n_layers = 1,
                                       .is_first = true,
                                       .is_last = true,
                                       .dummy_weights = true,
                                       .max_batched_tokens = max_batched_tokens,
                                       .max_sequences = max_sequences,
                                       .max_model_len = kMaxModelLen},
                                      ops.get(), nullptr);
  REQUIRE(model.ok());
  const auto report = ProfileMemory(**model, *ops, /*is_last=*/true,
                                    {.max_batched_tokens = max_batched_tokens,
                                     .max_sequences = max_sequences,
                                     .max_model_len = kMaxModelLen,
                                     .memory_fraction = 0.99});
  INFO(report.status());
  REQUIRE(report.ok());
}

}  // namespace
}  // namespace stagecoach::worker
