// Rotation, KV cache and attention, compared with the reference.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/cuda/testing/attention_checks.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Attention: head dimensions and query heads per KV head") {
  const int32_t head_dim = GENERATE(64, 80, 96, 128, 256, 16, 10);
  const int32_t group = GENERATE(1, 4, 5, 9);
  CheckSequence({.n_heads = 2 * group, .n_kv_heads = 2, .head_dim = head_dim}, 40, {40, 9, 1});
}

TEST_CASE("Attention: more query heads per KV head than tile rows") {
  CheckSequence({.n_heads = 24, .n_kv_heads = 1, .head_dim = 64}, 37, {37, 1});
}

TEST_CASE("Attention: RoPE on whole heads and on parts, with norms") {
  const int32_t rotary_dim = GENERATE(0, 2, 48, 62);
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  CheckSequence({.n_heads = 2, .dtype = dtype, .rope_and_norm = true, .rotary_dim = rotary_dim}, 40,
                {40, 1});
}

TEST_CASE("Attention: RoPE on whole heads") {
  const int32_t head_dim = GENERATE(64, 128, 256);
  const DType dtype = GENERATE(DType::kF32, DType::kF16);
  CheckSequence(
      {.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .dtype = dtype, .rope_and_norm = true},
      20, {20, 1});
}

TEST_CASE("Attention: cache dtypes, windows and soft caps") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 1, 16, 33, 100, {33, true}}));
  const float softcap = GENERATE(0.0f, 2.0f);
  CheckSequence({.window = window, .softcap = softcap, .dtype = dtype}, 150, {150, 70, 1});
}

TEST_CASE("Attention: sinks") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  const int32_t window = GENERATE(0, 20);
  const bool batch_invariant = GENERATE(false, true);
  const AttentionConfig config{.n_heads = 18,
                               .n_kv_heads = 2,
                               .head_dim = GENERATE(64, 128),
                               .window = window,
                               .dtype = dtype,
                               .has_sinks = true};
  CheckSequence(config, 50, {50, 33, 1}, batch_invariant);
}

TEST_CASE("Attention: sinks, few rows after a long context") {
  CheckLastRows({.n_heads = 8, .head_dim = 64, .has_sinks = true}, 400, {1, 33},
                GENERATE(false, true));
}

TEST_CASE("Attention: queries scaled by position, norms over all heads") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  const int32_t head_dim = GENERATE(64, 10);  // both kernels of RopeAppend
  CheckSequence({.n_heads = 6,
                 .n_kv_heads = 2,
                 .head_dim = head_dim,
                 .dtype = dtype,
                 .rope_and_norm = true,
                 .norms_all_heads = GENERATE(false, true),
                 .query_scaling = {.beta = 0.4f, .step = 10}},
                50, {50, 1});
}

TEST_CASE("Attention: normed values") {
  const int32_t head_dim = GENERATE(64, 256, 10);  // both kernels of RopeAppend
  CheckSequence({.n_heads = 6,
                 .n_kv_heads = 2,
                 .head_dim = head_dim,
                 .dtype = GENERATE(DType::kF32, DType::kBF16),
                 .rope_and_norm = true,
                 .norms_v = true},
                50, {50, 1});
}

TEST_CASE("Attention: keys that are values, and rows with queries only") {
  AttentionConfig config{.n_heads = 4,
                         .n_kv_heads = 2,
                         .head_dim = GENERATE(64, 256, 512),
                         .window = 10,
                         .rope_and_norm = true,
                         .norms_v = true,
                         .kv_of_row = GENERATE(KvOfRow::kKeysAsValues, KvOfRow::kNone)};
  const bool batch_invariant = GENERATE(false, true);
  CheckSequence(config, 18, {18, 17}, batch_invariant);  // the second one ends with a decode
}

TEST_CASE("Attention: rows with queries only, without tensor cores and with a part rotated") {
  CheckSequence({.n_heads = 4,
                 .dtype = GENERATE(DType::kF32, DType::kF16),
                 .rope_and_norm = true,
                 .rotary_dim = 32,
                 .kv_of_row = KvOfRow::kNone},
                18, {18, 17});
}

TEST_CASE("Attention: a long context") {
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 300, {300, true}}));
  CheckSequence({.n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .window = window}, 700, {700, 350});
}

TEST_CASE("Attention: chunks of many rows after a long context") {
  const int32_t head_dim = GENERATE(64, 128, 256);
  const int32_t group = GENERATE(1, 4);
  const float softcap = GENERATE(0.0f, 2.0f);
  const AttentionConfig config{.n_heads = 2 * group,
                               .n_kv_heads = 2,
                               .head_dim = head_dim,
                               .softcap = softcap,
                               .rope_and_norm = true};
  CheckSequence(config, 333, {333, 96, 200});
}

// The keys are split over several CTAs.
TEST_CASE("Attention: few rows after a long context") {
  const int32_t head_dim = GENERATE(64, 80, 96, 128, 256);
  const int32_t group = GENERATE(1, 4);
  CheckLastRows({.n_heads = group, .n_kv_heads = 1, .head_dim = head_dim}, 400, {2, 33});
}

TEST_CASE("Attention: few rows after a long context, all dtypes, windows and soft caps") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const KeyWindow window = GENERATE(values<KeyWindow>({0, 9, 333, {333, true}}));
  const float softcap = GENERATE(0.0f, 2.0f);
  CheckLastRows({.n_heads = 8, .window = window, .softcap = softcap, .dtype = dtype}, 410, {15});
}

TEST_CASE("Attention: more query heads per KV head than tile rows, after a long context") {
  CheckLastRows({.n_heads = 150, .n_kv_heads = 1, .head_dim = 64}, 500, {3});
}

TEST_CASE("Attention: decodes, few rows after long contexts and prompts in one step") {
  const AttentionConfig config{.n_heads = 4,
                               .n_kv_heads = 2,
                               .head_dim = 64,
                               .window = GENERATE(values<KeyWindow>({0, 300, {300, true}}))};
  struct Sequence {
    int32_t n_context, n_new;
  };
  const std::vector<Sequence> sequences = {{400, 1}, {610, 20}, {0, 130}, {300, 2}, {33, 1}};
  constexpr int32_t kBlocksEach = 41;
  std::vector<std::vector<float>> qkv;
  std::vector<AttentionLayer::Chunk> contexts, chunks;
  for (const Sequence& sequence : sequences) {
    const auto index = static_cast<int32_t>(qkv.size());
    qkv.push_back(
        RandomQkv(config, sequence.n_context + sequence.n_new, static_cast<uint32_t>(index)));
    if (sequence.n_context > 0) {
      contexts.push_back({index * kBlocksEach, 0, sequence.n_context, nullptr});
    }
    chunks.push_back({index * kBlocksEach, sequence.n_context, sequence.n_new, nullptr});
  }
  const auto from = [&](AttentionLayer::Chunk chunk) {
    chunk.qkv = qkv[static_cast<size_t>(chunk.first_block / kBlocksEach)].data() +
                int64_t{chunk.position} * config.qkv_width();
    return chunk;
  };
  std::transform(contexts.begin(), contexts.end(), contexts.begin(), from);
  std::transform(chunks.begin(), chunks.end(), chunks.begin(), from);
  const auto n_sequences = static_cast<int32_t>(sequences.size());
  const auto reference = MakeReferenceOps();
  AttentionLayer theirs(*reference, config, 2000, n_sequences * kBlocksEach);
  theirs.Step(contexts);
  const std::vector<float> expected = theirs.Step(chunks);
  for (const bool batch_invariant : {false, true}) {
    const auto ops = NewCudaOps(batch_invariant);
    AttentionLayer ours(*ops, config, 2000, n_sequences * kBlocksEach);
    ours.Step(contexts);
    CHECK(WorstError(ours.Step(chunks), expected, 0.3) < 2 * Step(config.dtype));
  }
}

#ifndef STAGECOACH_EMULATED_CUDA  // slow in emulation
TEST_CASE("Attention: few rows after a context whose keys are spread over all SMs") {
  const bool batch_invariant = GENERATE(false, true);
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const int32_t head_dim = GENERATE(64, 80, 96, 128, 256);
  CheckLastRows({.n_heads = 4, .n_kv_heads = 1, .head_dim = head_dim, .dtype = dtype}, 1500,
                {16, 100}, batch_invariant);
}

// Hopper's dense kernel takes these rows.
TEST_CASE("Attention: sinks and long prompts") {
  const int32_t head_dim = GENERATE(64, 128);
  CheckSequence({.n_heads = 16,
                 .n_kv_heads = 2,
                 .head_dim = head_dim,
                 .softcap = GENERATE(0.0f, 2.0f),
                 .has_sinks = true},
                1120, {1120, 700});
}

// It takes queries from rows of any width.
TEST_CASE("Attention: keys that are values, rows with queries only, and long prompts") {
  CheckSequence({.n_heads = 16,
                 .n_kv_heads = 2,
                 .head_dim = GENERATE(128, 256),
                 .kv_of_row = GENERATE(KvOfRow::kKeysAsValues, KvOfRow::kNone)},
                1120, {1120, 700});
}

// Hopper's dense kernel takes some of them, in passes over parts of the heads, because the keys of
// all heads do not fit.
TEST_CASE("Attention: long prompts in one step whose keys do not all fit in the scratch") {
  const AttentionConfig config{
      .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .softcap = GENERATE(0.0f, 2.0f)};
  constexpr int32_t kTokens = 1100, kBlocksEach = kTokens / 16 + 1;
  std::vector<std::vector<float>> qkv;
  std::vector<AttentionLayer::Chunk> chunks;
  for (const int32_t n : {kTokens, 900, 70}) {
    qkv.push_back(RandomQkv(config, n, static_cast<uint32_t>(n)));
    chunks.push_back({static_cast<int32_t>(chunks.size()) * kBlocksEach, 0, n, nullptr});
  }
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i].qkv = qkv[i].data();
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps();
  const std::vector<float> expected =
      AttentionLayer(*reference, config, kTokens, 3 * kBlocksEach).Step(chunks);
  CHECK(WorstError(AttentionLayer(*ops, config, kTokens, 3 * kBlocksEach).Step(chunks), expected,
                   0.3) < 2 * Step(config.dtype));
}
#endif

TEST_CASE("Attention: several prompts in one step whose keys do not all fit in the scratch") {
  const AttentionConfig config{
      .n_heads = 8, .n_kv_heads = 2, .head_dim = 128, .rope_and_norm = true};
  // The scratch holds this many keys, which are fewer than the keys of all prompts.
  constexpr int32_t kMaxPositions = 480;
  constexpr int32_t kBlocksEach = 20;
  std::vector<std::vector<float>> qkv;
  std::vector<AttentionLayer::Chunk> chunks;
  for (const int32_t n : {300, 129, 70}) {
    qkv.push_back(RandomQkv(config, n, static_cast<uint32_t>(n)));
    chunks.push_back({static_cast<int32_t>(chunks.size()) * kBlocksEach, 0, n, nullptr});
  }
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i].qkv = qkv[i].data();
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps();
  const std::vector<float> expected =
      AttentionLayer(*reference, config, kMaxPositions, 3 * kBlocksEach).Step(chunks);
  CHECK(WorstError(AttentionLayer(*ops, config, kMaxPositions, 3 * kBlocksEach).Step(chunks),
                   expected, 0.3) < 2 * Step(config.dtype));
}

TEST_CASE("Attention: sequences of all kinds in one step") {
  const MixedSteps mixed(
      {.n_heads = 6, .n_kv_heads = 2, .window = GENERATE(values<KeyWindow>({0, 40, {40, true}}))});
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  AttentionLayer mine(*ops, mixed.config, 300, 40), theirs(*reference, mixed.config, 300, 40);
  for (const auto& chunks : mixed.Steps()) {
    CHECK(WorstError(mine.Step(chunks), theirs.Step(chunks), 0.3) < 2 * Step(DType::kBF16));
  }
}

TEST_CASE("Attention: padding changes no result and writes nothing to the cache") {
  const AttentionConfig config{
      .n_heads = 4, .n_kv_heads = 2, .dtype = GENERATE(DType::kBF16, DType::kF32)};
  const std::vector<float> qkv = RandomQkv(config, 50, 1);
  const auto ops = NewCudaOps();
  AttentionLayer plain(*ops, config, 64, 6), padded(*ops, config, 64, 6);
  const float* const last = qkv.data() + 48 * config.qkv_width();
  plain.Step({{0, 0, 48, qkv.data()}});
  padded.Step({{0, 0, 48, qkv.data()}});
  CHECK(padded.Step({{0, 48, 1, last}}, 3) == plain.Step({{0, 48, 1, last}}));
  CHECK(padded.Step({{0, 49, 1, last + config.qkv_width()}}, 7) ==
        plain.Step({{0, 49, 1, last + config.qkv_width()}}));
}

}  // namespace
}  // namespace stagecoach::kernels
