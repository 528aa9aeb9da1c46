// Attention with --batch-invariant: a row's bits depend only on its own position.
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "kernels/cuda/step/step_builder.h"
#include "kernels/cuda/testing/attention_checks.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Attention: batch-invariant, with units that are merged") {
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 600, {600, true}}));
  CheckSequence({.n_heads = 3, .n_kv_heads = 1, .head_dim = 128, .window = window}, 1080,
                {1080, 530}, /*batch_invariant=*/true);
}

TEST_CASE("Attention: batch-invariant, with every dtype") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 1, 33, {33, true}}));
  const float softcap = GENERATE(0.0f, 2.0f);
  CheckSequence({.n_heads = 6,
                 .n_kv_heads = 2,
                 .head_dim = 128,
                 .window = window,
                 .softcap = softcap,
                 .dtype = dtype},
                150, {150, 70, 1}, /*batch_invariant=*/true);
}

TEST_CASE("Attention: batch-invariant decodes, with and without a moving maximum score") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const float deviation = GENERATE(0.3f, 6.0f);
  const AttentionConfig config{.n_heads = 3, .n_kv_heads = 1, .head_dim = 128, .dtype = dtype};
  constexpr int32_t kTokens = 300;
  const std::vector<float> qkv = RandomQkv(config, kTokens, 7, deviation);
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  AttentionLayer theirs(*reference, config, kTokens, kTokens / 16 + 2),
      ours(*ops, config, kTokens, kTokens / 16 + 2);
  const std::vector<float> expected = theirs.InChunks(qkv, kTokens);
  ours.InChunks(qkv, kTokens);
  const auto n_out = static_cast<size_t>(config.out_width());
  for (const int32_t p : {0, 63, 64, 100, 255, 299}) {
    INFO(DTypeName(dtype) << " deviation " << deviation << " position " << p);
    const std::vector<float> one = ours.Step({{0, p, 1, qkv.data() + p * config.qkv_width()}});
    const auto* const of_row = expected.data() + static_cast<size_t>(p) * n_out;
    CHECK(WorstError(one, std::vector<float>(of_row, of_row + n_out), 0.3) < 2 * Step(dtype));
  }
}

#ifndef STAGECOACH_EMULATED_CUDA  // slow in emulation
// The kernels use different tensor core instructions. Only this test shows that they round alike.
TEST_CASE("Attention: batch-invariant prefill and decode give the same bits") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const float deviation = GENERATE(0.3f, 1.0f, 2.0f, 6.0f);
  struct Shape {
    int32_t n_heads, n_kv_heads, window, n_tokens, stride, head_dim = 128;
    float softcap = 0;
  };
  // Decode kernels covered: teams; warps; with growing context teams in one round, teams in several
  // rounds, then warps.
  const Shape shape = GENERATE(Shape{16, 4, 0, 1300, 1}, Shape{16, 4, 200, 1300, 1},
                               Shape{420, 420, 0, 50, 1}, Shape{130, 130, 0, 1600, 61},
                               Shape{16, 4, 0, 1300, 7, 64}, Shape{16, 4, 200, 1300, 7, 80},
                               Shape{16, 4, 0, 1300, 7, 96}, Shape{16, 4, 0, 1300, 7, 128, 3.0f});
  const AttentionConfig config{.n_heads = shape.n_heads,
                               .n_kv_heads = shape.n_kv_heads,
                               .head_dim = shape.head_dim,
                               .window = shape.window,
                               .softcap = shape.softcap,
                               .dtype = dtype};
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const std::vector<float> qkv = RandomQkv(config, shape.n_tokens, 7, deviation);
  AttentionLayer whole(*ops, config, shape.n_tokens, shape.n_tokens / 16 + 2);
  const std::vector<float> all = whole.InChunks(qkv, shape.n_tokens);
  size_t n_different = 0;
  for (int32_t p = 0; p < shape.n_tokens; p += shape.stride) {
    const std::vector<float> one =
        whole.Step({{0, p, 1, qkv.data() + int64_t{p} * config.qkv_width()}});
    for (size_t i = 0; i < one.size(); ++i) {
      n_different += one[i] != all[static_cast<size_t>(p) * one.size() + i];
    }
  }
  INFO(DTypeName(dtype) << " deviation " << deviation << " heads " << shape.n_heads << "/"
                        << shape.n_kv_heads << " x " << shape.head_dim << " window " << shape.window
                        << " cap " << shape.softcap);
  CHECK(n_different == 0);
}
#endif

TEST_CASE("Attention: batch-invariant rows do not depend on chunks or neighbours") {
  const int32_t head_dim = GENERATE(64, 96, 128, 256);
  const int32_t window = GENERATE(0, 600);
  INFO("dim " << head_dim << " window " << window);
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  {
    const AttentionConfig config{
        .n_heads = 2, .n_kv_heads = 1, .head_dim = head_dim, .window = window};
    const std::vector<float> qkv = RandomQkv(config, 1100, 1, /*deviation=*/1.5f);
    AttentionLayer whole(*ops, config, 1100, 80), parts(*ops, config, 1100, 80);
    const std::vector<float> all = whole.InChunks(qkv, 1100);
    // Decodes run only around the ends of units, because they are slow.
    std::vector<float> out;
    for (int32_t p = 0; p < 1100;) {
      const int32_t n = p < 500 ? 500 - p : p < 530 ? 1 : p < 1020 ? 1020 - p : p < 1060 ? 1 : 40;
      const std::vector<float> part = parts.Step({{0, p, n, qkv.data() + p * config.qkv_width()}});
      out.insert(out.end(), part.begin(), part.end());
      p += n;
    }
    CHECK(std::memcmp(out.data(), all.data(), all.size() * sizeof(float)) == 0);
  }
  const MixedSteps mixed({.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .window = window});
  AttentionLayer together(*ops, mixed.config, 300, 40), apart(*ops, mixed.config, 300, 40);
  for (const auto& chunks : mixed.Steps()) {
    const std::vector<float> out = together.Step(chunks);
    std::vector<float> separate;
    for (const AttentionLayer::Chunk& chunk : chunks) {
      const std::vector<float> one = apart.Step({chunk});
      separate.insert(separate.end(), one.begin(), one.end());
    }
    CHECK(std::memcmp(out.data(), separate.data(), out.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("Attention: batch-invariant, with more query heads per KV head than tile rows") {
  const int32_t n_heads = GENERATE(9, 20);
  CheckSequence({.n_heads = n_heads, .n_kv_heads = 1, .head_dim = 64}, 60, {60, 25, 1},
                /*batch_invariant=*/true);
}

// More units than teams process, if there are two SMs as in emulation.
TEST_CASE("Attention: batch-invariant decodes of long contexts") {
  constexpr int32_t kTokens = 1560, kDecoded = 2, kBlocks = kTokens / 16 + 1;
  const AttentionConfig config{.n_heads = 2, .n_kv_heads = 1, .head_dim = 64};
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const std::vector<float> qkv = RandomQkv(config, kTokens, 1, /*deviation=*/1.5f);
  AttentionLayer whole(*ops, config, kTokens, 101), parts(*ops, config, kTokens, 201);
  const std::vector<float> all = whole.InChunks(qkv, kTokens);
  for (const int32_t block : {0, kBlocks}) {
    parts.Step({{block, 0, kTokens - kDecoded, qkv.data()}});
  }
  for (int32_t p = kTokens - kDecoded; p < kTokens; ++p) {
    const float* const of_row = qkv.data() + int64_t{p} * config.qkv_width();
    const std::vector<float> out = parts.Step({{0, p, 1, of_row}, {kBlocks, p, 1, of_row}});
    const size_t width = out.size() / 2, at = static_cast<size_t>(p) * width;
    CHECK(std::memcmp(out.data(), all.data() + at, width * sizeof(float)) == 0);
    CHECK(std::memcmp(out.data() + width, all.data() + at, width * sizeof(float)) == 0);
  }
}

TEST_CASE("Attention: the order of additions does not depend on the number of slots") {
  cuda::Stream stream;
  REQUIRE(cudaStreamCreateWithFlags(&stream.handle, cudaStreamNonBlocking) == cudaSuccess);
  for (const int32_t max_slots : {4, 16}) {
    const auto inputs = cuda::NewCudaStepInputs(stream,
                                                {.max_tokens = 32,
                                                 .max_slots = max_slots,
                                                 .max_blocks = 1 << 16,
                                                 .groups = {{0}},
                                                 .n_heads = 8,
                                                 .n_kv_heads = 8,
                                                 .head_dim = 64,
                                                 .act_dtype = DType::kBF16,
                                                 .kv_dtype = DType::kBF16},
                                                /*fixed_units=*/true);
    REQUIRE(inputs.ok());
    // The memory limit for the usual number of slots sets the unit size.
    CHECK((*inputs)->setup.unit_blocks == 2048);
  }
  REQUIRE(cudaStreamSynchronize(stream.handle) == cudaSuccess);
  cudaStreamDestroy(stream.handle);
}

}  // namespace
}  // namespace stagecoach::kernels
