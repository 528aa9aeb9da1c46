// Attention over an FP8 cache.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/cuda/testing/attention_checks.h"
#include "kernels/testing/kv_fp8_rows.h"

namespace stagecoach::kernels {
namespace {

// Keys and values that FP8 holds exactly give the bits that they give in a 16-bit cache, for which
// other tests check what attention computes. A chunk of one row is a decode.
void CheckSameBits(AttentionConfig config, int32_t n, const std::vector<int32_t>& chunks,
                   bool batch_invariant = false) {
  INFO("heads " << config.n_heads << "/" << config.n_kv_heads << " dim " << config.head_dim << " "
                << DTypeName(config.dtype) << (batch_invariant ? ", batch-invariant" : ""));
  const std::vector<float> qkv = ExactInFp8(config, RandomQkv(config, n, 5));
  const auto ops = NewCudaOps(batch_invariant);
  for (const int32_t size : chunks) {
    INFO("chunk " << size);
    config.fp8_cache = false;
    const std::vector<float> plain =
        AttentionLayer(*ops, config, n, n / 16 + 2).InChunks(qkv, size);
    config.fp8_cache = true;
    CHECK(AttentionLayer(*ops, config, n, n / 16 + 2).InChunks(qkv, size) == plain);
  }
}

TEST_CASE("FP8 cache: the bits of a 16-bit cache with the same numbers") {
  const int32_t group = GENERATE(1, 4, 9);
  CheckSameBits({.n_heads = 2 * group,
                 .n_kv_heads = 2,
                 .head_dim = GENERATE(64, 80, 96, 128, 256, 16, 20),
                 .dtype = GENERATE(DType::kBF16, DType::kF16)},
                40, {39, 9});
}

TEST_CASE("FP8 cache: the same bits with windows, soft caps and sinks") {
  CheckSameBits({.n_heads = 4,
                 .n_kv_heads = 2,
                 .window = GENERATE(values<KeyWindow>({0, 33, {33, true}})),
                 .softcap = GENERATE(0.0f, 2.0f),
                 .has_sinks = true},
                70, {69, 40}, GENERATE(false, true));
}

TEST_CASE("FP8 cache: keys after rotation and norms, values after norms") {
  const auto [head_dim, kv_of_row] =
      GENERATE(table<int32_t, KvOfRow>({{64, KvOfRow::kKeysAndValues},
                                        {96, KvOfRow::kKeysAndValues},
                                        {128, KvOfRow::kKeysAndValues},
                                        {256, KvOfRow::kKeysAndValues},
                                        {256, KvOfRow::kNone}}));
  const AttentionConfig config{.n_heads = 6,
                               .n_kv_heads = 2,
                               .head_dim = head_dim,
                               .dtype = GENERATE(DType::kF32, DType::kBF16),
                               .fp8_cache = true,
                               .rope_and_norm = true,
                               .rotary_dim = GENERATE(0, 48),
                               .norms_v = true,
                               .kv_of_row = kv_of_row};
  const int32_t n = 50;
  const std::vector<float> qkv = RandomQkv(config, n, 5);
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps();
  const std::vector<float> expected =
      AttentionLayer(*reference, config, n, n / 16 + 2).InChunks(qkv, n);
  // A number between two codes that is computed a little differently becomes the other code. That
  // is rare, and changes it by at most 1/16 of itself.
  CHECK(WorstError(AttentionLayer(*ops, config, n, n / 16 + 2).InChunks(qkv, n), expected, 0.3) <
        2 * Step(DType::kBF16) + 1.0 / 16);
}

TEST_CASE("FP8 cache: batch-invariant attention gives the same bits for every chunk") {
  const AttentionConfig config{.n_heads = 8,
                               .n_kv_heads = 2,
                               .head_dim = GENERATE(64, 128, 256),
                               .fp8_cache = true,
                               .rope_and_norm = true};
  const std::vector<float> qkv = RandomQkv(config, 90, 5);
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const auto with_chunks = [&](int32_t size) {
    return AttentionLayer(*ops, config, 90, 8).InChunks(qkv, size);
  };
  const std::vector<float> whole = with_chunks(90);
  CHECK(with_chunks(33) == whole);
  CHECK(with_chunks(1) == whole);
}

// The keys are split over several CTAs.
TEST_CASE("FP8 cache: few rows after a long context") {
  CheckLastRows({.n_heads = GENERATE(1, 4), .n_kv_heads = 1, .fp8_cache = true}, 400, {1, 33},
                GENERATE(false, true));
}

}  // namespace
}  // namespace stagecoach::kernels
