// The operations of latent attention.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "kernels/cpu/kernel_test_util.h"
#include "kernels/testing/latent_layer.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("HeadGemm equals the reference, and a row does not depend on others") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  auto ops = MakeCpuOpsFor(target, 2);
  auto reference = MakeReferenceOps();
  constexpr int32_t kHeads = 3, kRows = 53;
  for (const auto& sizes : {std::pair(32, 24), std::pair(80, 17)}) {
    const int32_t n_outputs = sizes.first, cols = sizes.second;
    const auto products = [&](Ops& on, int32_t n_rows, int32_t first) {
      return HeadProducts(on, dtype, n_rows, first, kHeads, n_outputs, cols);
    };
    const std::vector<float> all = products(*ops, kRows, 0);
    CHECK(WorstError(all, products(*reference, kRows, 0)) < 2e-5);
    for (const int32_t first : {0, 20, 52}) {
      const std::vector<float> one = products(*ops, 1, first);
      CHECK(SameBits(one.data(), all.data() + static_cast<size_t>(first) * one.size(), one.size()));
    }
  }
}

TEST_CASE("attention to latents equals the reference, in any chunks") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const bool interleaved = GENERATE(false, true);
  const LatentConfig config{.n_heads = GENERATE(1, 4, 50),
                            .kv_rank = GENERATE(32, 112),
                            .dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16),
                            .interleaved = interleaved,
                            // One of the two rotations has scaled queries.
                            .query_scaling = {.beta = interleaved ? 0.4f : 0.0f, .step = 30}};
  CAPTURE(target, config.n_heads, config.kv_rank, DTypeName(config.dtype));
  constexpr int32_t kTokens = 300;
  auto ops = MakeCpuOpsFor(target, 2);
  auto reference = MakeReferenceOps();
  const LatentRows rows(config, kTokens);
  LatentLayer mine(*ops, config, kTokens), theirs(*reference, config, kTokens);
  const std::vector<float> whole = mine.Step(rows, 0, kTokens);
  // The sums of both may round a latent to another neighbour in the cache's type.
  CHECK(WorstError(whole, theirs.Step(rows, 0, kTokens)) < 2 * Step(config.dtype));
  CHECK(whole == mine.InChunks(rows, kTokens, 1));
  CHECK(whole == LatentLayer(*ops, config, kTokens).InChunks(rows, kTokens, 37));
}

TEST_CASE("copies of latents go on on another device") {
  const LatentConfig config{.dtype = GENERATE(DType::kF32, DType::kBF16)};
  CheckCopiedLatents(*MakeCpuOps({.n_threads = 2}), *MakeReferenceOps(), config);
}

}  // namespace
}  // namespace stagecoach::kernels
