#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <numeric>

#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

struct Config {
  int32_t n_heads = 4, n_kv_heads = 1, head_dim = 64;
  int32_t window = 0;
  float softcap = 0;
  DType dtype = DType::kBF16;
  bool rope_and_norm = true;
  int32_t rotary_dim = 0;  // 0: head_dim

  int32_t qkv_width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
  int32_t out_width() const { return n_heads * head_dim; }
};

// One layer of a device, with a cache whose blocks are handed out in a scattered order and start
// full of NaN.
class Layer {
 public:
  Layer(Ops& ops, const Config& config, int32_t max_positions, int32_t n_blocks)
      : ops_(ops), config_(config), block_order_(n_blocks) {
    const size_t elements =
        static_cast<size_t>(n_blocks) * config.n_kv_heads * kBlockTokens * config.head_dim;
    k_ = *ops.Allocate(elements * DTypeBytes(config.dtype));
    v_ = *ops.Allocate(elements * DTypeBytes(config.dtype));
    std::memset(k_.data.get(), 0xff, k_.bytes);
    std::memset(v_.data.get(), 0xff, v_.bytes);
    for (int32_t i = 0; i < n_blocks; ++i) block_order_[i] = (i * 7 + 3) % n_blocks;
    const int32_t rotary_dim = config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
    const int32_t half = rotary_dim / 2;
    for (int32_t p = 0; p < max_positions; ++p) {
      for (int32_t i = 0; i < half; ++i) {
        const double angle = p * std::pow(10000.0, -static_cast<double>(i) / half);
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    rope_ = {cos_.data(), sin_.data(), rotary_dim};
    step_ = *ops.NewStepInputs({.max_tokens = 2 * max_positions,
                                .max_slots = kMaxChunks,
                                .max_blocks = max_positions / 16 + 2,
                                .windows = {config.window}});
    q_norm_ = RandomFloats(config.head_dim, 11, 0.1f);
    k_norm_ = RandomFloats(config.head_dim, 12, 0.1f);
  }

  struct Chunk {
    int32_t first_block;  // of block_order_
    int32_t position, n_tokens;
    const float* qkv;  // [n_tokens, qkv_width]
  };

  // Appends and attends all chunks as one step. out: [sum of n_tokens, out_width]
  std::vector<float> Step(const std::vector<Chunk>& chunks) {
    std::vector<float> qkv;
    std::vector<StepSeq> seqs;
    std::vector<NewBlock> blocks;
    int32_t n_tokens = 0;
    for (const Chunk& chunk : chunks) {
      qkv.insert(qkv.end(), chunk.qkv, chunk.qkv + chunk.n_tokens * config_.qkv_width());
      const int32_t slot = kMaxChunks - 1 - static_cast<int32_t>(seqs.size());
      seqs.push_back({slot, chunk.position, chunk.n_tokens});
      n_tokens += chunk.n_tokens;
      const int32_t oldest =
          config_.window > 0 ? std::max(0, chunk.position - config_.window + 1) / 16 : 0;
      const int32_t end = (chunk.position + chunk.n_tokens + 15) / 16;
      for (int32_t b = 0; b < end; ++b) {
        blocks.push_back({0, slot, b, b >= oldest ? block_order_[chunk.first_block + b] : -1});
      }
    }
    ops_.BuildStep({.seqs = seqs, .new_blocks = blocks, .n_tokens = n_tokens}, step_.get());
    const KvLayer kv{k_.data.get(), v_.data.get(), config_.dtype};
    ops_.RopeAppend({.qkv = qkv.data(),
                     .positions = step_->positions,
                     .kv_slots = step_->groups[0].kv_slots,
                     .rope = config_.rope_and_norm ? &rope_ : nullptr,
                     .q_norm = config_.rope_and_norm ? q_norm_.data() : nullptr,
                     .k_norm = config_.rope_and_norm ? k_norm_.data() : nullptr,
                     .norm_kind = NormKind::kRmsPlusOne,
                     .norm_eps = 1e-6f,
                     .kv = kv,
                     .n_tokens = n_tokens,
                     .n_heads = config_.n_heads,
                     .n_kv_heads = config_.n_kv_heads,
                     .head_dim = config_.head_dim});
    std::vector<float> out(static_cast<size_t>(n_tokens * config_.out_width()), NAN);
    ops_.Attention({.qkv = qkv.data(),
                    .kv = kv,
                    .step = step_.get(),
                    .group = 0,
                    .out = out.data(),
                    .n_heads = config_.n_heads,
                    .n_kv_heads = config_.n_kv_heads,
                    .head_dim = config_.head_dim,
                    .scale = 1 / std::sqrt(static_cast<float>(config_.head_dim)),
                    .softcap = config_.softcap,
                    .window = config_.window});
    REQUIRE(ops_.Synchronize().ok());
    return out;
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
  static constexpr int32_t kMaxChunks = 4;
  Ops& ops_;
  const Config config_;
  std::unique_ptr<StepInputs> step_;
  Buffer k_, v_;
  std::vector<int32_t> block_order_;
  std::vector<float> cos_, sin_, q_norm_, k_norm_;
  RopeTable rope_;
};

void CheckSequence(const Config& config, int32_t n, const std::string& target) {
  INFO(target << " heads " << config.n_heads << "/" << config.n_kv_heads << " dim "
              << config.head_dim << " window " << config.window << " cap " << config.softcap << " "
              << DTypeName(config.dtype) << " tokens " << n);
  const std::vector<float> qkv = RandomFloats(static_cast<size_t>(n * config.qkv_width()), 5);
  const int32_t n_blocks = n / 16 + 2;
  auto reference = MakeReferenceOps();
  auto ops = MakeCpuOpsFor(target, 2);
  auto alone = MakeCpuOpsFor(target, 1);
  const std::vector<float> whole = Layer(*ops, config, n, n_blocks).InChunks(qkv, n);
  const std::vector<float> expected = Layer(*reference, config, n, n_blocks).InChunks(qkv, n);
  // After norm and rotation a last bit of float may round k to the neighbouring 16-bit value.
  const double one_step = config.dtype == DType::kBF16 ? 8e-3 : 1e-3;
  const bool exact_cache = config.dtype == DType::kF32 || !config.rope_and_norm;
  CHECK(WorstError(whole, expected, 0.1) < (exact_cache ? 2e-5 : one_step));
  for (const int32_t size : {1, 7, 16}) {
    INFO("chunk " << size);
    Layer layer(size == 7 ? *alone : *ops, config, n, n_blocks);
    CHECK(SameBits(layer.InChunks(qkv, size).data(), whole.data(), whole.size()));
  }
}

TEST_CASE("Attention: head dimensions and query heads a KV head") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const int32_t head_dim = GENERATE(16, 64, 80, 96, 128, 256, 72, 10);
  const int32_t group = GENERATE(1, 2, 3, 4, 8);
  const bool rope_and_norm = GENERATE(false, true);
  CheckSequence(
      {.n_heads = 2 * group, .n_kv_heads = 2, .head_dim = head_dim, .rope_and_norm = rope_and_norm},
      70, target);
}

TEST_CASE("Attention: rotation of a part of each head") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const int32_t rotary_dim = GENERATE(2, 48, 62);
  CheckSequence({.n_heads = 2, .rotary_dim = rotary_dim}, 40, target);
}

TEST_CASE("Attention: cache dtypes, windows and soft caps") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int32_t window = GENERATE(0, 1, 16, 33, 100);
  const float softcap = GENERATE(0.0f, 2.0f);
  const bool rope_and_norm = GENERATE(false, true);
  CheckSequence(
      {.window = window, .softcap = softcap, .dtype = dtype, .rope_and_norm = rope_and_norm}, 150,
      target);
}

TEST_CASE("Attention: several splits of a long context") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const int32_t window = GENERATE(0, 300);
  CheckSequence({.n_heads = 2, .head_dim = 16, .window = window, .rope_and_norm = false}, 601,
                target);
}

TEST_CASE("Attention: a sequence does not notice the others of its step") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const Config config{.n_heads = 6, .n_kv_heads = 2, .window = GENERATE(0, 40)};
  auto ops = MakeCpuOpsFor(target, 3);
  const int32_t width = config.qkv_width();
  const std::vector<float> a = RandomFloats(120 * width, 1), b = RandomFloats(60 * width, 2),
                           c = RandomFloats(300 * width, 3);
  Layer together(*ops, config, 300, 40), apart(*ops, config, 300, 40);
  // Prefill of one beside decode of another and a chunk of a third.
  const auto both = [&](const std::vector<Layer::Chunk>& chunks) {
    const std::vector<float> out = together.Step(chunks);
    std::vector<float> separate;
    for (const Layer::Chunk& chunk : chunks) {
      const std::vector<float> one = apart.Step({chunk});
      separate.insert(separate.end(), one.begin(), one.end());
    }
    CHECK(SameBits(out.data(), separate.data(), out.size()));
  };
  both({{0, 0, 119, a.data()}, {10, 0, 60, b.data()}, {16, 0, 250, c.data()}});
  both({{16, 250, 49, c.data() + 250 * width}, {0, 119, 1, a.data() + 119 * width}});
}

TEST_CASE("Attention: a value that is not a number stays in its own sequence and behind its time") {
  auto ops = MakeCpuOps({.n_threads = 2});
  const Config config{.n_heads = 2, .n_kv_heads = 1, .head_dim = 32};
  std::vector<float> qkv = RandomFloats(40 * config.qkv_width(), 1);
  Layer clean_layer(*ops, config, 64, 8), layer(*ops, config, 64, 8);
  const std::vector<float> clean = clean_layer.InChunks(qkv, 40);
  for (int32_t i = 0; i < config.qkv_width(); ++i) qkv[37 * config.qkv_width() + i] = NAN;
  const std::vector<float> out = layer.InChunks(qkv, 40);
  CHECK(SameBits(out.data(), clean.data(), 37 * static_cast<size_t>(config.out_width())));
}

}  // namespace
}  // namespace stagecoach::kernels
