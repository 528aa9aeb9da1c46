#include <catch2/generators/catch_generators.hpp>

#include "kernels/reference/reference_ops.h"
#include "kernels/testing/kv_fp8_rows.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Attention over an FP8 cache is that over its numbers") {
  const bool windowed = GENERATE(false, true);
  const AttentionConfig exact{.n_heads = 4,
                              .n_kv_heads = 2,
                              .head_dim = GENERATE(64, 10),
                              .window = windowed ? 20 : 0,
                              .dtype = DType::kF32,
                              .has_sinks = windowed};
  AttentionConfig fp8 = exact;
  fp8.fp8_cache = true;
  constexpr int32_t kTokens = 40;
  const std::vector<float> any = RandomFloats(size_t{kTokens} * exact.qkv_width(), 5);
  const std::vector<float> rows = ExactInFp8(exact, any);
  CHECK(WorstError(rows, any) < 0.05);
  const auto ops = MakeReferenceOps();
  const auto attend = [&](const AttentionConfig& config, const std::vector<float>& qkv) {
    return AttentionLayer(*ops, config, kTokens, 5).InChunks(qkv, 16);
  };
  CHECK(attend(fp8, any) == attend(exact, rows));
}

}  // namespace
}  // namespace stagecoach::kernels
