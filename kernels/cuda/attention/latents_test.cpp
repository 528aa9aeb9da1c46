// The operations of latent attention.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/cuda/testing/device_values.h"
#include "kernels/testing/latent_layer.h"

namespace stagecoach::kernels {
namespace {

struct HeadSizes {
  int32_t n_outputs, cols, n_more;
};

TEST_CASE("HeadGemm equals the reference, and a row does not depend on others") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  constexpr int32_t kHeads = 3;
  // The first two are not aligned. The others have whole and parts of tiles.
  const auto sizes =
      GENERATE(values<HeadSizes>({{32, 24, 3}, {80, 130, 3}, {64, 128, 64}, {144, 200, 8}}));
  const int32_t n_rows = GENERATE(19, 71);
  const auto products = [&](Ops& on, int32_t n, int32_t first) {
    return HeadProducts(on, dtype, n, first, kHeads, sizes.n_outputs, sizes.cols, sizes.n_more);
  };
  const std::vector<float> all = products(*ops, n_rows, 0);
  CHECK(WorstError(all, products(*reference, n_rows, 0)) < Step(dtype));
  const std::vector<float> one = products(*ops, 1, n_rows - 2);
  const auto of_all = all.begin() + static_cast<std::ptrdiff_t>((n_rows - 2) * one.size());
  CHECK(std::equal(one.begin(), one.end(), of_all));
}

TEST_CASE("attention to latents equals the reference, in any chunks") {
  const bool scaled = GENERATE(false, true);
  const LatentConfig config{.n_heads = GENERATE(1, 5),
                            .kv_rank = GENERATE(32, 112),
                            .dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16),
                            .interleaved = GENERATE(false, true),
                            .query_scaling = {.beta = scaled ? 0.4f : 0.0f, .step = 30}};
  CAPTURE(config.n_heads, config.kv_rank, DTypeName(config.dtype));
  constexpr int32_t kTokens = 70;
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  const LatentRows rows(config, kTokens);
  LatentLayer mine(*ops, config, kTokens), theirs(*reference, config, kTokens);
  const std::vector<float> whole = mine.Step(rows, 0, kTokens);
  // Queries that are scaled are rounded once more.
  const double most = (scaled ? 4 : 2) * Step(config.dtype);
  CHECK(WorstError(whole, theirs.Step(rows, 0, kTokens)) < most);
  CHECK(whole == LatentLayer(*ops, config, kTokens).InChunks(rows, kTokens, 27));
}

TEST_CASE("copies of latents go on on another device") {
  const LatentConfig config{.dtype = GENERATE(DType::kF32, DType::kBF16)};
  CheckCopiedLatents(*NewCudaOps(), *MakeReferenceOps(), config);
}

}  // namespace
}  // namespace stagecoach::kernels
