// Rotation, the cache and attention, against the reference.
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "kernels/cuda/step_builder.h"
#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

struct Config {
  int32_t n_heads = 4, n_kv_heads = 1, head_dim = 64;
  int32_t window = 0;
  float softcap = 0;
  DType dtype = DType::kBF16;
  bool rope_and_norm = false;
  int32_t rotary_dim = 0;  // 0: head_dim

  int32_t qkv_width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
  int32_t out_width() const { return n_heads * head_dim; }
};

// One layer of a device, with a cache whose blocks are handed out in a scattered order and start
// full of NaN.
class Layer {
 public:
  static constexpr int32_t kMaxChunks = 6;

  Layer(Ops& ops, const Config& config, int32_t max_positions, int32_t n_blocks)
      : ops_(ops),
        config_(config),
        block_order_(static_cast<size_t>(n_blocks)),
        q_norm_(ops, RandomFloats(config.head_dim, 11, 0.1f)),
        k_norm_(ops, RandomFloats(config.head_dim, 12, 0.1f)),
        cos_(ops, Waves(config, max_positions, false)),
        sin_(ops, Waves(config, max_positions, true)) {
    const size_t bytes = static_cast<size_t>(n_blocks) * config.n_kv_heads * kBlockTokens *
                         config.head_dim * DTypeBytes(config.dtype);
    k_ = *ops.Allocate(bytes);
    v_ = *ops.Allocate(bytes);
    const std::vector<unsigned char> nan(bytes, 0xff);
    ops.Upload(nan.data(), k_.data.get(), bytes);
    ops.Upload(nan.data(), v_.data.get(), bytes);
    for (int32_t i = 0; i < n_blocks; ++i) block_order_[i] = (i * 7 + 3) % n_blocks;
    rope_ = {cos_.f32(), sin_.f32(), RotaryDim(config)};
    StepLimits limits{.max_tokens = 2 * max_positions,
                      .max_slots = kMaxChunks,
                      .max_blocks = max_positions / 16 + 2,
                      .windows = {config.window},
                      .n_heads = config.n_heads,
                      .n_kv_heads = config.n_kv_heads,
                      .head_dim = config.head_dim,
                      .kv_dtype = config.dtype,
                      .has_softcap = config.softcap > 0};
    const size_t scratch_bytes = ops.AttentionScratchBytes(limits);
    if (scratch_bytes > 0) {
      // What is there means nothing, and two sequences may not both have room.
      scratch_ = *ops.Allocate(scratch_bytes);
      const std::vector<unsigned char> garbage(scratch_bytes, 0xff);
      ops.Upload(garbage.data(), scratch_.data.get(), scratch_bytes);
      limits.attention_scratch = scratch_.data.get();
      limits.attention_scratch_bytes = scratch_bytes;
    }
    step_ = *ops.NewStepInputs(limits);
  }

  struct Chunk {
    int32_t first_block;  // of block_order_
    int32_t position, n_tokens;
    const float* qkv;  // [n_tokens, qkv_width]
  };

  // Appends and attends all chunks as one step. out: [sum of n_tokens, out_width]
  std::vector<float> Step(const std::vector<Chunk>& chunks, int32_t n_padding = 0) {
    std::vector<float> qkv;
    std::vector<StepSeq> seqs;
    std::vector<NewBlock> blocks;
    int32_t n_tokens = 0;
    for (const Chunk& chunk : chunks) {
      qkv.insert(qkv.end(), chunk.qkv, chunk.qkv + chunk.n_tokens * config_.qkv_width());
      const int32_t slot = kMaxChunks - 1 - static_cast<int32_t>(seqs.size());
      seqs.push_back({slot, chunk.position, chunk.n_tokens});
      n_tokens += chunk.n_tokens;
      for (int32_t b = 0; b < (chunk.position + chunk.n_tokens + 15) / 16; ++b) {
        blocks.push_back({0, slot, b, block_order_[static_cast<size_t>(chunk.first_block + b)]});
      }
    }
    ops_.BuildStep(
        {.seqs = seqs, .new_blocks = blocks, .n_tokens = n_tokens, .n_padding = n_padding},
        step_.get());
    qkv.resize(qkv.size() + static_cast<size_t>(n_padding * config_.qkv_width()), 1.0f);
    const Values in(ops_, qkv, config_.dtype);
    const KvLayer kv{k_.data.get(), v_.data.get(), config_.dtype};
    ops_.RopeAppend({.qkv = in,
                     .positions = step_->positions,
                     .kv_slots = step_->groups[0].kv_slots,
                     .rope = config_.rope_and_norm ? &rope_ : nullptr,
                     .q_norm = config_.rope_and_norm ? q_norm_.f32() : nullptr,
                     .k_norm = config_.rope_and_norm ? k_norm_.f32() : nullptr,
                     .norm_kind = NormKind::kRmsPlusOne,
                     .norm_eps = 1e-6f,
                     .kv = kv,
                     .n_tokens = n_tokens + n_padding,
                     .n_heads = config_.n_heads,
                     .n_kv_heads = config_.n_kv_heads,
                     .head_dim = config_.head_dim});
    const size_t n_out = static_cast<size_t>(n_tokens * config_.out_width());
    const Values out(
        ops_, std::vector<float>(n_out + static_cast<size_t>(n_padding * config_.out_width()), NAN),
        config_.dtype);
    ops_.Attention({.qkv = in,
                    .kv = kv,
                    .step = step_.get(),
                    .group = 0,
                    .out = out,
                    .n_heads = config_.n_heads,
                    .n_kv_heads = config_.n_kv_heads,
                    .head_dim = config_.head_dim,
                    .scale = 1 / std::sqrt(static_cast<float>(config_.head_dim)),
                    .softcap = config_.softcap,
                    .window = config_.window});
    std::vector<float> result = out.Get();
    result.resize(n_out);
    return result;
  }

  // The whole sequence in chunks of `size`.
  std::vector<float> InChunks(const std::vector<float>& qkv, int32_t size) {
    const int32_t n = static_cast<int32_t>(qkv.size()) / config_.qkv_width();
    std::vector<float> out;
    for (int32_t p = 0; p < n; p += size) {
      const std::vector<float> part =
          Step({{0, p, std::min(size, n - p), qkv.data() + p * config_.qkv_width()}});
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

 private:
  static int32_t RotaryDim(const Config& config) {
    return config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
  }
  static std::vector<float> Waves(const Config& config, int32_t max_positions, bool is_sin) {
    const int32_t half = RotaryDim(config) / 2;
    std::vector<float> waves;
    for (int32_t p = 0; p < max_positions; ++p) {
      for (int32_t i = 0; i < half; ++i) {
        const double angle = p * std::pow(10000.0, -static_cast<double>(i) / half);
        waves.push_back(static_cast<float>(is_sin ? std::sin(angle) : std::cos(angle)));
      }
    }
    return waves;
  }

  Ops& ops_;
  const Config config_;
  std::unique_ptr<StepInputs> step_;
  Buffer k_, v_, scratch_;
  std::vector<int32_t> block_order_;
  Values q_norm_, k_norm_, cos_, sin_;
  RopeTable rope_;
};

std::vector<float> RandomQkv(const Config& config, int32_t n, uint32_t seed, float deviation = 1) {
  return Rounded(RandomFloats(static_cast<size_t>(n * config.qkv_width()), seed, deviation),
                 config.dtype);
}

void CheckSequence(const Config& config, int32_t n, const std::vector<int32_t>& chunks,
                   bool batch_invariant = false) {
  INFO("heads " << config.n_heads << "/" << config.n_kv_heads << " dim " << config.head_dim
                << " window " << config.window << " cap " << config.softcap << " "
                << DTypeName(config.dtype) << " tokens " << n);
  const std::vector<float> qkv = RandomQkv(config, n, 5);
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps(batch_invariant);
  const std::vector<float> expected = Layer(*reference, config, n, n / 16 + 2).InChunks(qkv, n);
  // The weights are rounded before they meet the values, and k after its rotation.
  const double tolerance = config.dtype == DType::kF32 ? 1e-4 : 2 * Step(config.dtype);
  for (const int32_t size : chunks) {
    INFO("chunk " << size);
    CHECK(WorstError(Layer(*ops, config, n, n / 16 + 2).InChunks(qkv, size), expected, 0.3) <
          tolerance);
  }
}

TEST_CASE("Attention: head dimensions and query heads a KV head") {
  const int32_t head_dim = GENERATE(64, 80, 96, 128, 256, 16, 10);
  const int32_t group = GENERATE(1, 4, 5, 9);
  CheckSequence({.n_heads = 2 * group, .n_kv_heads = 2, .head_dim = head_dim}, 40, {40, 9, 1});
}

TEST_CASE("Attention: more query heads a KV head than rows of a tile") {
  CheckSequence({.n_heads = 24, .n_kv_heads = 1, .head_dim = 64}, 37, {37, 1});
}

TEST_CASE("Attention: rotation, and of a part of each head, with norms") {
  const int32_t rotary_dim = GENERATE(0, 2, 48, 62);
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  CheckSequence({.n_heads = 2, .dtype = dtype, .rope_and_norm = true, .rotary_dim = rotary_dim}, 40,
                {40, 1});
}

TEST_CASE("Attention: rotation of whole heads") {
  const int32_t head_dim = GENERATE(64, 128, 256);
  const DType dtype = GENERATE(DType::kF32, DType::kF16);
  CheckSequence(
      {.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .dtype = dtype, .rope_and_norm = true},
      20, {20, 1});
}

TEST_CASE("Attention: cache types, windows and soft caps") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int32_t window = GENERATE(0, 1, 16, 33, 100);
  const float softcap = GENERATE(0.0f, 2.0f);
  CheckSequence({.window = window, .softcap = softcap, .dtype = dtype}, 150, {150, 70, 1});
}

TEST_CASE("Attention: a long context") {
  const int32_t window = GENERATE(0, 300);
  CheckSequence({.n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .window = window}, 700, {700, 350});
}

TEST_CASE("Attention: chunks of many rows after a long context") {
  const int32_t head_dim = GENERATE(64, 128, 256);
  const int32_t group = GENERATE(1, 4);
  const float softcap = GENERATE(0.0f, 2.0f);
  const Config config{.n_heads = 2 * group,
                      .n_kv_heads = 2,
                      .head_dim = head_dim,
                      .softcap = softcap,
                      .rope_and_norm = true};
  CheckSequence(config, 333, {333, 96, 200});
}

TEST_CASE("Attention: several prompts at once, whose keys do not all fit the scratch") {
  const Config config{.n_heads = 8, .n_kv_heads = 2, .head_dim = 128, .rope_and_norm = true};
  constexpr int32_t kMaxPositions = 480;  // and so many keys fit, not those of all
  constexpr int32_t kBlocksEach = 20;
  std::vector<std::vector<float>> qkv;
  std::vector<Layer::Chunk> chunks;
  for (const int32_t n : {300, 129, 70}) {
    qkv.push_back(RandomQkv(config, n, static_cast<uint32_t>(n)));
    chunks.push_back({static_cast<int32_t>(chunks.size()) * kBlocksEach, 0, n, nullptr});
  }
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i].qkv = qkv[i].data();
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps();
  const std::vector<float> expected =
      Layer(*reference, config, kMaxPositions, 3 * kBlocksEach).Step(chunks);
  CHECK(WorstError(Layer(*ops, config, kMaxPositions, 3 * kBlocksEach).Step(chunks), expected,
                   0.3) < 2 * Step(config.dtype));
}

// Prefill of one beside decodes and a chunk of others.
struct Mixed {
  explicit Mixed(const Config& config)
      : config(config),
        a(RandomQkv(config, 120, 1)),
        b(RandomQkv(config, 60, 2)),
        c(RandomQkv(config, 300, 3)) {}

  std::vector<std::vector<Layer::Chunk>> Steps() const {
    const int32_t width = config.qkv_width();
    return {{{0, 0, 119, a.data()}, {10, 0, 60, b.data()}, {16, 0, 250, c.data()}},
            {{16, 250, 49, c.data() + 250 * width}, {0, 119, 1, a.data() + 119 * width}},
            {{16, 299, 1, c.data() + 299 * width}}};
  }

  const Config config;
  const std::vector<float> a, b, c;
};

TEST_CASE("Attention: sequences of all kinds in one step") {
  const Mixed mixed({.n_heads = 6, .n_kv_heads = 2, .window = GENERATE(0, 40)});
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  Layer mine(*ops, mixed.config, 300, 40), theirs(*reference, mixed.config, 300, 40);
  for (const auto& chunks : mixed.Steps()) {
    CHECK(WorstError(mine.Step(chunks), theirs.Step(chunks), 0.3) < 2 * Step(DType::kBF16));
  }
}

TEST_CASE("Attention: padding changes nothing and leaves nothing in the cache") {
  const Config config{.n_heads = 4, .n_kv_heads = 2, .dtype = GENERATE(DType::kBF16, DType::kF32)};
  const std::vector<float> qkv = RandomQkv(config, 50, 1);
  const auto ops = NewCudaOps();
  Layer plain(*ops, config, 64, 6), padded(*ops, config, 64, 6);
  const float* const last = qkv.data() + 48 * config.qkv_width();
  plain.Step({{0, 0, 48, qkv.data()}});
  padded.Step({{0, 0, 48, qkv.data()}});
  CHECK(padded.Step({{0, 48, 1, last}}, 3) == plain.Step({{0, 48, 1, last}}));
  CHECK(padded.Step({{0, 49, 1, last + config.qkv_width()}}, 7) ==
        plain.Step({{0, 49, 1, last + config.qkv_width()}}));
}

TEST_CASE("Attention: batch-invariant, in units that are merged") {
  const int32_t window = GENERATE(0, 600);
  CheckSequence({.n_heads = 3, .n_kv_heads = 1, .head_dim = 128, .window = window}, 1080,
                {1080, 530}, /*batch_invariant=*/true);
}

TEST_CASE("Attention: batch-invariant, in every type") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int32_t window = GENERATE(0, 1, 33);
  const float softcap = GENERATE(0.0f, 2.0f);
  CheckSequence({.n_heads = 6,
                 .n_kv_heads = 2,
                 .head_dim = 128,
                 .window = window,
                 .softcap = softcap,
                 .dtype = dtype},
                150, {150, 70, 1}, /*batch_invariant=*/true);
}

TEST_CASE("Attention: batch-invariant decodes where the largest score moves, or not") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const float deviation = GENERATE(0.3f, 6.0f);
  const Config config{.n_heads = 3, .n_kv_heads = 1, .head_dim = 128, .dtype = dtype};
  constexpr int32_t kTokens = 300;
  const std::vector<float> qkv = RandomQkv(config, kTokens, 7, deviation);
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  Layer theirs(*reference, config, kTokens, kTokens / 16 + 2),
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

#ifndef STAGECOACH_EMULATED_CUDA  // takes long there
// Kernels on different instructions of the tensor cores: nothing but this shows that they round
// alike.
TEST_CASE("Attention: batch-invariant prefill and decode have the same bits") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const float deviation = GENERATE(0.3f, 1.0f, 2.0f, 6.0f);
  struct Shape {
    int32_t n_heads, n_kv_heads, window, n_tokens, stride;
  };
  // Decoded by teams; by warps; with growing contexts by teams in one turn, in several, by warps.
  const Shape shape = GENERATE(Shape{16, 4, 0, 1300, 1}, Shape{16, 4, 200, 1300, 1},
                               Shape{420, 420, 0, 50, 1}, Shape{130, 130, 0, 1600, 61});
  const Config config{.n_heads = shape.n_heads,
                      .n_kv_heads = shape.n_kv_heads,
                      .head_dim = 128,
                      .window = shape.window,
                      .dtype = dtype};
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const std::vector<float> qkv = RandomQkv(config, shape.n_tokens, 7, deviation);
  Layer whole(*ops, config, shape.n_tokens, shape.n_tokens / 16 + 2);
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
                        << shape.n_kv_heads << " window " << shape.window);
  CHECK(n_different == 0);
}
#endif

TEST_CASE("Attention: batch-invariant rows do not depend on chunks or neighbours") {
  const int32_t head_dim = GENERATE(64, 96, 128, 256);
  const int32_t window = GENERATE(0, 600);
  INFO("dim " << head_dim << " window " << window);
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  {
    const Config config{.n_heads = 2, .n_kv_heads = 1, .head_dim = head_dim, .window = window};
    const std::vector<float> qkv = RandomQkv(config, 1100, 1, /*deviation=*/1.5f);
    Layer whole(*ops, config, 1100, 80), parts(*ops, config, 1100, 80);
    const std::vector<float> all = whole.InChunks(qkv, 1100);
    // Decodes only where units end, as they take long.
    std::vector<float> out;
    for (int32_t p = 0; p < 1100;) {
      const int32_t n = p < 500 ? 500 - p : p < 530 ? 1 : p < 1020 ? 1020 - p : p < 1060 ? 1 : 40;
      const std::vector<float> part = parts.Step({{0, p, n, qkv.data() + p * config.qkv_width()}});
      out.insert(out.end(), part.begin(), part.end());
      p += n;
    }
    CHECK(std::memcmp(out.data(), all.data(), all.size() * sizeof(float)) == 0);
  }
  const Mixed mixed({.n_heads = 6, .n_kv_heads = 2, .head_dim = head_dim, .window = window});
  Layer together(*ops, mixed.config, 300, 40), apart(*ops, mixed.config, 300, 40);
  for (const auto& chunks : mixed.Steps()) {
    const std::vector<float> out = together.Step(chunks);
    std::vector<float> separate;
    for (const Layer::Chunk& chunk : chunks) {
      const std::vector<float> one = apart.Step({chunk});
      separate.insert(separate.end(), one.begin(), one.end());
    }
    CHECK(std::memcmp(out.data(), separate.data(), out.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("Attention: batch-invariant, with more query heads a KV head than rows of a tile") {
  const int32_t n_heads = GENERATE(9, 20);
  CheckSequence({.n_heads = n_heads, .n_kv_heads = 1, .head_dim = 64}, 60, {60, 25, 1},
                /*batch_invariant=*/true);
}

// More units than teams take turns at, where there are two multiprocessors as in emulation.
TEST_CASE("Attention: batch-invariant decodes of long contexts") {
  constexpr int32_t kTokens = 1560, kDecoded = 2, kBlocks = kTokens / 16 + 1;
  const Config config{.n_heads = 2, .n_kv_heads = 1, .head_dim = 64};
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const std::vector<float> qkv = RandomQkv(config, kTokens, 1, /*deviation=*/1.5f);
  Layer whole(*ops, config, kTokens, 101), parts(*ops, config, kTokens, 201);
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
                                                 .windows = {0},
                                                 .n_heads = 8,
                                                 .n_kv_heads = 8,
                                                 .head_dim = 64,
                                                 .kv_dtype = DType::kBF16},
                                                /*fixed_units=*/true);
    REQUIRE(inputs.ok());
    // Memory sets it: that of as many slots as there usually are.
    CHECK((*inputs)->setup.unit_blocks == 2048);
  }
  REQUIRE(cudaStreamSynchronize(stream.handle) == cudaSuccess);
  cudaStreamDestroy(stream.handle);
}

TEST_CASE("a step is built from slots and new blocks, and recorded calls follow it") {
  const auto ops = NewCudaOps();
  const auto step =
      *ops->NewStepInputs({.max_tokens = 32, .max_slots = 4, .max_blocks = 3, .windows = {0, 20}});
  const auto ints = [&](const int32_t* from, int32_t n) {
    std::vector<int32_t> values(static_cast<size_t>(n));
    ops->Download(from, values.data(), values.size() * sizeof(int32_t));
    REQUIRE(ops->Synchronize().ok());
    return values;
  };
  using Ints = std::vector<int32_t>;
  const std::vector<NewBlock> blocks = {{0, 2, 0, 5}, {0, 2, 1, 6}, {1, 2, 0, 7},
                                        {1, 2, 1, 8}, {0, 1, 0, 9}, {1, 1, 0, 1}};
  const Ints sampled = {10, 11, 12, 13};
  ops->Upload(sampled.data(), step->sampled, 16);
  const std::vector<StepSeq> seqs = {{2, 15, 2}, {1, 3, 1}};
  const Ints ids = {40, 41, kSampledToken};
  ops->BuildStep({.seqs = seqs, .token_ids = ids, .new_blocks = blocks, .n_tokens = 3}, step.get());
  CHECK(ints(step->token_ids, 3) == Ints{40, 41, 11});
  CHECK(ints(step->positions, 3) == Ints{15, 16, 3});
  CHECK(ints(step->seq_starts, 3) == Ints{0, 2, 3});
  CHECK(ints(step->seq_positions, 2) == Ints{15, 3});
  CHECK(ints(step->seq_slots, 2) == Ints{2, 1});
  CHECK(ints(step->groups[0].kv_slots, 3) == Ints{5 * 16 + 15, 6 * 16, 9 * 16 + 3});
  CHECK(ints(step->groups[1].kv_slots, 3) == Ints{7 * 16 + 15, 8 * 16, 16 + 3});

  // What was said before is kept.
  const std::vector<StepSeq> next = {{2, 17, 1}};
  const Ints next_ids = {kSampledToken};
  ops->BuildStep({.seqs = next, .token_ids = next_ids, .n_tokens = 1, .n_padding = 1}, step.get());
  CHECK(ints(step->token_ids, 1) == Ints{12});
  CHECK(ints(step->groups[0].kv_slots, 2) == Ints{6 * 16 + 1, -1});
  CHECK(step->n_tokens == 2);

  const Matrix table = PackedMatrix(*ops, 50, 4, DType::kF32, RandomFloats(200, 1));
  const Values out(*ops, std::vector<float>(8, NAN));
  const auto embed = [&] {
    ops->Embed({.ids = step->token_ids, .table = &table, .scale = 1, .out = out, .n_tokens = 2});
  };
  auto recording = ops->Record(embed);
  REQUIRE(recording.ok());
  CHECK(std::isnan(out.Get()[0]));
  (*recording)->Replay();
  const std::vector<float> first = out.Get();
  const Ints other_ids = {3};
  ops->BuildStep({.seqs = next, .token_ids = other_ids, .n_tokens = 1, .n_padding = 1}, step.get());
  (*recording)->Replay();
  const std::vector<float> second = out.Get();
  embed();
  CHECK(out.Get() == second);
  CHECK(first != second);
}

}  // namespace
}  // namespace stagecoach::kernels
