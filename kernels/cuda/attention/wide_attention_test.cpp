// Attention to heads of 512 and to latents of published sizes, on the tensor cores.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/cuda/testing/attention_checks.h"
#include "kernels/testing/latent_layer.h"

namespace stagecoach::kernels {
namespace {

LatentConfig ConfigOf(int32_t n_heads, int32_t rank, DType dtype = DType::kBF16) {
  return {.n_heads = n_heads, .kv_rank = rank, .rope_dim = 64, .dtype = dtype, .scale = 0.07f};
}

TEST_CASE("attention with heads of 512 equals the reference") {
  const bool batch_invariant = GENERATE(false, true);
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const int32_t n_heads = GENERATE(2, 18);
  const AttentionConfig config{.n_heads = n_heads,
                               .n_kv_heads = 2,
                               .head_dim = 512,
                               .dtype = dtype,
                               .has_sinks = dtype == DType::kF16};
  CheckSequence(config, 37, {37, 9, 1}, batch_invariant);
}

TEST_CASE("decodes with many query heads of 512 per KV head") {
  CheckSequence({.n_heads = 66, .n_kv_heads = 2, .head_dim = 512}, 7, {7, 1});
}

TEST_CASE("attention with heads of 512 behind a long context") {
  CheckLastRows({.n_heads = 2, .n_kv_heads = 1, .head_dim = 512}, 530, {1, 3},
                GENERATE(false, true));
}

TEST_CASE("heads of 512 in models with smaller heads, windows and float32") {
  CheckSequence({.n_heads = 2, .head_dim = 512, .window = GENERATE(0, 20), .dtype = DType::kF32},
                40, {40, 1});
  CheckSequence({.n_heads = 2, .head_dim = 512, .window = 20}, 40, {40, 1});
}

TEST_CASE("latent attention equals the reference") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const int32_t rank = GENERATE(256, 512);
  const int32_t n_heads = GENERATE(1, 20, 40);
  const bool batch_invariant = GENERATE(false, true);
  const LatentConfig config = ConfigOf(n_heads, rank, dtype);
  CAPTURE(n_heads, rank, DTypeName(dtype), batch_invariant);
  constexpr int32_t kTokens = 39;
  const LatentRows rows(config, kTokens);
  const auto ops = NewCudaOps(batch_invariant);
  const auto reference = MakeReferenceOps();
  LatentLayer mine(*ops, config, kTokens), theirs(*reference, config, kTokens);
  for (const auto& [position, n] : {std::pair(0, 1), std::pair(1, 37), std::pair(38, 1)}) {
    CAPTURE(position);
    CHECK(WorstError(mine.Step(rows, position, n), theirs.Step(rows, position, n)) <
          2 * Step(dtype));
  }
}

// Rows behind a context of more than one unit: their keys are cut, and merged.
TEST_CASE("latent attention behind a long context") {
  const bool batch_invariant = GENERATE(false, true);
  const int32_t n_heads = GENERATE(2, 33);  // both sizes of tiles
  const LatentConfig config = ConfigOf(n_heads, 256);
  constexpr int32_t kContext = 1100;
  const LatentRows rows(config, kContext + 2);
  const auto ops = NewCudaOps(batch_invariant);
  const auto reference = MakeReferenceOps();
  LatentLayer mine(*ops, config, kContext + 2), theirs(*reference, config, kContext + 2);
  const std::vector<StepSeq> before{{.slot = 0, .position = 0, .n_tokens = kContext}};
  mine.Append(rows, before);
  theirs.Append(rows, before);
  const std::vector<float> both = mine.Step(rows, kContext, 2);
  CHECK(WorstError(both, theirs.Step(rows, kContext, 2)) < 2 * Step(config.dtype));
  const std::vector<float> first = mine.Step(rows, kContext, 1);
  const std::vector<float> of_both(both.begin(), both.begin() + config.out_width());
  if (batch_invariant) {
    CHECK(first == of_both);
  } else {
    CHECK(WorstError(first, of_both) < 2 * Step(config.dtype));
  }
}

TEST_CASE("batch-invariant latent attention does not depend on chunks and neighbours") {
  const LatentConfig config = ConfigOf(GENERATE(3, 33), 256);
  constexpr int32_t kContext = 1030, kTokens = kContext + 9;
  const LatentRows rows(config, kTokens);
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  LatentLayer layer(*ops, config, kTokens, /*max_slots=*/3);
  for (int32_t slot = 0; slot < 3; ++slot) {
    layer.Append(rows, {{.slot = slot, .position = 0, .n_tokens = kContext}});
  }
  const std::vector<float> whole = layer.Step(rows, kContext, 9);
  CHECK(layer.InChunks(rows, kTokens, 4, kContext) == whole);
  CHECK(layer.InChunks(rows, kTokens, 1, kContext) == whole);
  // A short sequence, a decode and a few rows in one step.
  const std::vector<float> beside =
      layer.Step(rows, {{.slot = 1, .position = 0, .n_tokens = 5},
                        {.slot = 2, .position = kContext, .n_tokens = 1},
                        {.slot = 0, .position = kContext, .n_tokens = 9}});
  const auto row = [&](const std::vector<float>& of, int32_t i) {
    return std::vector<float>(of.begin() + int64_t{i} * config.out_width(),
                              of.begin() + int64_t{i + 1} * config.out_width());
  };
  CHECK(row(beside, 5) == row(whole, 0));
  for (int32_t i = 0; i < 9; ++i) CHECK(row(beside, 6 + i) == row(whole, i));
}

TEST_CASE("a recorded step of latents goes on with other sequences and longer contexts") {
  const bool batch_invariant = GENERATE(false, true);
  const LatentConfig config = ConfigOf(GENERATE(2, 40), 256);
  constexpr int32_t kTokens = 620, kRows = 3;
  const LatentRows rows(config, kTokens);
  const auto ops = NewCudaOps(batch_invariant);
  LatentLayer layer(*ops, config, kTokens, kRows);
  for (int32_t slot = 0; slot < kRows; ++slot) {
    layer.Append(rows, {{.slot = slot, .position = 0, .n_tokens = kTokens - 1}});
  }
  const auto decode = [](int32_t slot, int32_t position) {
    return StepSeq{.slot = slot, .position = position, .n_tokens = 1};
  };
  const Values out(*ops, std::vector<float>(static_cast<size_t>(kRows * config.out_width())),
                   config.dtype);
  // Three short contexts are recorded. Two sequences run, one of them with many keys.
  const Values queries = layer.Append(rows, {decode(0, 3), decode(1, 20), decode(2, 33)});
  auto recording = ops->Record([&] { layer.Attend(queries, out); });
  REQUIRE(recording.ok());
  const std::vector<StepSeq> later{decode(2, kTokens - 1), decode(0, 40)};
  const Values later_queries = layer.Append(rows, later, /*n_padding=*/1);
  const std::vector<float> numbers = later_queries.Get();
  const Values copied(*ops, numbers, config.dtype);
  ops->Convert(ConstAct(copied), Act(queries), static_cast<int64_t>(numbers.size()));
  (*recording)->Replay();
  const std::vector<float> replayed = out.Get();
  const std::vector<float> expected = layer.Step(rows, later);
  CHECK(std::equal(expected.begin(), expected.end(), replayed.begin()));
}

}  // namespace
}  // namespace stagecoach::kernels
