#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <numeric>

#include "kernels/cpu/kernel_test_util.h"
#include "kernels/testing/kv_fp8_rows.h"

namespace stagecoach::kernels {
namespace {

void CheckSequence(AttentionConfig config, int32_t n, const std::string& target) {
  config.forgets_blocks = true;
  INFO(target << " heads " << config.n_heads << "/" << config.n_kv_heads << " dim "
              << config.head_dim << " window " << config.window.size << " cap " << config.softcap
              << " " << DTypeName(config.kv_dtype()) << " tokens " << n);
  const std::vector<float> qkv = RandomFloats(static_cast<size_t>(n * config.qkv_width()), 5);
  const int32_t n_blocks = n / 16 + 2;
  auto reference = MakeReferenceOps();
  auto ops = MakeCpuOpsFor(target, 2);
  auto alone = MakeCpuOpsFor(target, 1);
  const std::vector<float> whole = AttentionLayer(*ops, config, n, n_blocks).InChunks(qkv, n);
  const std::vector<float> expected =
      AttentionLayer(*reference, config, n, n_blocks).InChunks(qkv, n);
  // After norm and rotation, a difference in the last float bit may round k to the neighbouring
  // 16-bit value or code.
  const double one_step = config.fp8_cache ? 5e-2 : config.dtype == DType::kBF16 ? 8e-3 : 1e-3;
  const bool exact_cache = config.kv_dtype() == DType::kF32 || !config.rope_and_norm;
  CHECK(WorstError(whole, expected, 0.1) < (exact_cache ? 2e-5 : one_step));
  for (const int32_t size : {1, 7, 16}) {
    INFO("chunk " << size);
    AttentionLayer layer(size == 7 ? *alone : *ops, config, n, n_blocks);
    CHECK(SameBits(layer.InChunks(qkv, size).data(), whole.data(), whole.size()));
  }
}

TEST_CASE("Attention: head dimensions and query heads per KV head") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const int32_t head_dim = GENERATE(16, 64, 80, 96, 128, 256, 72, 10);
  const int32_t group = GENERATE(1, 2, 3, 4, 8);
  const bool rope_and_norm = GENERATE(false, true);
  CheckSequence(
      {.n_heads = 2 * group, .n_kv_heads = 2, .head_dim = head_dim, .rope_and_norm = rope_and_norm},
      70, target);
}

TEST_CASE("Attention: RoPE on a part of each head") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const int32_t rotary_dim = GENERATE(2, 48, 62);
  CheckSequence({.n_heads = 2, .rope_and_norm = true, .rotary_dim = rotary_dim}, 40, target);
}

TEST_CASE("Attention: sinks, queries scaled by position, norms over all heads") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const int32_t window = GENERATE(0, 20);
  CheckSequence({.n_heads = 8,
                 .n_kv_heads = 2,
                 .window = window,
                 .dtype = DType::kF32,
                 .rope_and_norm = true,
                 .has_sinks = true,
                 .norms_all_heads = true,
                 .query_scaling = {.beta = 0.4f, .step = 30}},
                300, target);
}

TEST_CASE("Attention: cache dtypes, windows and soft caps") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const DType cache = GENERATE(DType::kF32, DType::kBF16, DType::kF16, DType::kFp8);
  const bool is_fp8 = cache == DType::kFp8;
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 1, 16, 33, 100, {16, true}, {33, true}}));
  const float softcap = GENERATE(0.0f, 2.0f);
  const bool rope_and_norm = GENERATE(false, true);
  CheckSequence({.window = window,
                 .softcap = softcap,
                 .dtype = is_fp8 ? DType::kBF16 : cache,
                 .fp8_cache = is_fp8,
                 .rope_and_norm = rope_and_norm},
                150, target);
}

TEST_CASE("Attention: an FP8 cache gives the bits of a float32 cache with its numbers") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const int32_t head_dim = GENERATE(10, 64, 80, 128);
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 33, {33, true}}));
  const int32_t n = 290;  // two splits, and a block that is not full
  const AttentionConfig exact{.n_heads = 6,
                              .n_kv_heads = 2,
                              .head_dim = head_dim,
                              .window = window,
                              .dtype = DType::kF32,
                              .forgets_blocks = true,
                              .has_sinks = true};
  AttentionConfig fp8 = exact;
  fp8.fp8_cache = true;
  auto ops = MakeCpuOpsFor(target, 2);
  const auto layer = [&](const AttentionConfig& config) {
    return AttentionLayer(*ops, config, n, n / 16 + 2);
  };
  // Rows of different scales.
  std::vector<float> any = RandomFloats(static_cast<size_t>(n * exact.qkv_width()), 5);
  for (size_t i = 0; i < any.size(); ++i) any[i] *= std::exp2(static_cast<float>(i / 997 % 9) - 4);
  const std::vector<float> rows = ExactInFp8(exact, any);
  const std::vector<float> expected = layer(exact).InChunks(rows, n);
  CHECK(SameBits(layer(fp8).InChunks(any, n).data(), expected.data(), expected.size()));
  CHECK(SameBits(layer(fp8).InChunks(any, 7).data(), expected.data(), expected.size()));
}

TEST_CASE("Attention: a long context in several splits") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 300, {300, true}}));
  CheckSequence({.n_heads = 2, .head_dim = 16, .window = window, .rope_and_norm = false}, 601,
                target);
}

TEST_CASE("Attention: a sequence does not depend on the others in its step") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const AttentionConfig config{.n_heads = 6,
                               .n_kv_heads = 2,
                               .window = GENERATE(values<KeyWindow>({0, 40, {40, true}})),
                               .fp8_cache = GENERATE(false, true),
                               .rope_and_norm = true,
                               .forgets_blocks = true};
  auto ops = MakeCpuOpsFor(target, 3);
  const int32_t width = config.qkv_width();
  const std::vector<float> a = RandomFloats(120 * width, 1), b = RandomFloats(60 * width, 2),
                           c = RandomFloats(300 * width, 3);
  AttentionLayer together(*ops, config, 300, 40), apart(*ops, config, 300, 40);
  // Prefill of one sequence, with decode of another and a chunk of a third.
  const auto both = [&](const std::vector<AttentionLayer::Chunk>& chunks) {
    const std::vector<float> out = together.Step(chunks);
    std::vector<float> separate;
    for (const AttentionLayer::Chunk& chunk : chunks) {
      const std::vector<float> one = apart.Step({chunk});
      separate.insert(separate.end(), one.begin(), one.end());
    }
    CHECK(SameBits(out.data(), separate.data(), out.size()));
  };
  both({{0, 0, 119, a.data()}, {10, 0, 60, b.data()}, {16, 0, 250, c.data()}});
  both({{16, 250, 49, c.data() + 250 * width}, {0, 119, 1, a.data() + 119 * width}});
}

TEST_CASE("Attention: a NaN affects neither other sequences nor earlier rows") {
  auto ops = MakeCpuOps({.n_threads = 2});
  const AttentionConfig config{.n_heads = 2,
                               .n_kv_heads = 1,
                               .head_dim = 32,
                               .fp8_cache = GENERATE(false, true),
                               .rope_and_norm = true};
  std::vector<float> qkv = RandomFloats(40 * config.qkv_width(), 1);
  AttentionLayer clean_layer(*ops, config, 64, 8), layer(*ops, config, 64, 8);
  const std::vector<float> clean = clean_layer.InChunks(qkv, 40);
  for (int32_t i = 0; i < config.qkv_width(); ++i) qkv[37 * config.qkv_width() + i] = NAN;
  const std::vector<float> out = layer.InChunks(qkv, 40);
  CHECK(SameBits(out.data(), clean.data(), 37 * static_cast<size_t>(config.out_width())));
}

}  // namespace
}  // namespace stagecoach::kernels
