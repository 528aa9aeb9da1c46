// A device that allows a CTA less shared memory, like those of compute capability 8.6, 8.9 and
// 12.0.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "absl/cleanup/cleanup.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/testing/attention_checks.h"
#include "kernels/testing/latent_layer.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Attention: the same bits on a GPU with less shared memory per CTA") {
  const bool batch_invariant = GENERATE(false, true);
  const AttentionConfig config{
      .n_heads = 4, .n_kv_heads = 2, .head_dim = GENERATE(128, 256), .window = GENERATE(0, 40)};
  constexpr int32_t kTokens = 150;
  const std::vector<float> qkv = RandomQkv(config, kTokens, 1, /*deviation=*/1.5f);
  std::vector<std::vector<float>> results;
  for (const size_t bytes : {simt::kUsualBlockSharedBytes, size_t{99} << 10}) {
    simt::SetBlockSharedBytes(bytes);
    const absl::Cleanup back = [] { simt::SetBlockSharedBytes(simt::kUsualBlockSharedBytes); };
    const auto ops = NewCudaOps(batch_invariant);
    results.push_back(AttentionLayer(*ops, config, kTokens, 12).InChunks(qkv, 119));
    REQUIRE(ops->Synchronize().ok());
  }
  INFO("dim " << config.head_dim << " window " << config.window.size << " invariant "
              << batch_invariant);
  CHECK(results[0] == results[1]);
}

// Prompts in tiles of 64 rows, and of 16.
TEST_CASE("latent attention: the same bits on a GPU with less shared memory per CTA") {
  const LatentConfig config{
      .n_heads = 40, .kv_rank = 512, .rope_dim = 64, .dtype = DType::kBF16, .scale = 0.07f};
  constexpr int32_t kTokens = 39;
  const LatentRows rows(config, kTokens);
  std::vector<std::vector<float>> results;
  for (const size_t bytes : {simt::kUsualBlockSharedBytes, size_t{99} << 10}) {
    simt::SetBlockSharedBytes(bytes);
    const absl::Cleanup back = [] { simt::SetBlockSharedBytes(simt::kUsualBlockSharedBytes); };
    const auto ops = NewCudaOps(/*batch_invariant=*/true);
    results.push_back(LatentLayer(*ops, config, kTokens).InChunks(rows, kTokens, 38));
    REQUIRE(ops->Synchronize().ok());
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("Attention: large heads and many queries on a GPU with less shared memory per CTA") {
  simt::SetBlockSharedBytes(size_t{99} << 10);
  const absl::Cleanup back = [] { simt::SetBlockSharedBytes(simt::kUsualBlockSharedBytes); };
  CheckSequence({.n_heads = 10, .n_kv_heads = 1, .head_dim = 256}, 20, {20, 1});
}

// Fewer weights are in flight.
TEST_CASE("FP8: one row has the same bits on a GPU with less shared memory per CTA") {
  for (const int32_t cols : {4096, 14336}) {
    const std::vector<StoredPart> stored = RandomParts({{32, Code::kFp8}}, cols);
    std::vector<std::vector<float>> results;
    for (const size_t bytes : {simt::kUsualBlockSharedBytes, size_t{163} << 10, size_t{99} << 10}) {
      simt::SetBlockSharedBytes(bytes);
      const absl::Cleanup back = [] { simt::SetBlockSharedBytes(simt::kUsualBlockSharedBytes); };
      const auto ops = NewCudaOps();
      const Matrix w = PackParts(*ops, stored, cols);
      const Values x(*ops, RandomFloats(static_cast<size_t>(cols), 2), DType::kBF16),
          y(*ops, std::vector<float>(32));
      ops->Gemm({.x = x, .w = &w, .y = y, .n_rows = 1});
      results.push_back(y.Get());
    }
    CHECK(results[1] == results[0]);
    CHECK(results[2] == results[0]);
  }
}

}  // namespace
}  // namespace stagecoach::kernels
