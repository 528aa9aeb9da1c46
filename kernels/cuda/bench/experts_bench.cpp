// Experts' MLPs with 16-bit and with packed weights, and routing.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "common/encoding/rows.h"
#include "kernels/cuda/bench/bench.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

struct BenchedExperts {
  const char* name;
  int32_t n_experts, n_used, hidden, width;
  Encoding encoding = Code::kBF16;
  bool has_biases = false;  // and a clamped activation, as gpt-oss
};

void BenchRouting(Bench& bench, const BenchedExperts& layer, int32_t rows) {
  Ops& ops = bench.ops();
  const auto n = static_cast<size_t>(rows), hidden = static_cast<size_t>(layer.hidden);
  std::vector<Matrix> routers;
  for (int i = 0; i < 8; ++i) routers.push_back(bench.RandomMatrix(layer.n_experts, layer.hidden));
  const Buffer x = bench.Random(n * hidden, DType::kF32), normed = bench.Random(n * hidden, kType);
  const Buffer weight = bench.Random(hidden, DType::kF32);
  const Buffer logits = bench.Random(n * static_cast<size_t>(layer.n_experts), DType::kF32);
  const Buffer experts = *ops.Allocate(n * static_cast<size_t>(layer.n_used) * sizeof(int32_t));
  const Buffer weights = *ops.Allocate(n * static_cast<size_t>(layer.n_used) * sizeof(float));
  std::vector<std::function<void()>> calls;
  for (const Matrix& router : routers) {
    calls.push_back([&] {
      ops.NormRoute({.x = x.As<float>(),
                     .weight = weight.As<float>(),
                     .bias = nullptr,
                     .out = {normed.data.get(), kType},
                     .n_rows = rows,
                     .width = layer.hidden,
                     .kind = NormKind::kRms,
                     .eps = 1e-5f,
                     .add_to_out = false},
                    {.x = {normed.data.get(), kType},
                     .w = &router,
                     .bias = nullptr,
                     .y = logits.As<float>(),
                     .n_rows = rows,
                     .add_to_y = false},
                    {.logits = logits.As<float>(),
                     .experts = experts.As<int32_t>(),
                     .weights = weights.As<float>(),
                     .n_tokens = rows,
                     .n_experts = layer.n_experts,
                     .n_used = layer.n_used,
                     .over_used = true});
    });
  }
  bench.Line(fmt::format("norm, router, route {} rows {}", layer.name, rows), bench.Seconds(calls),
             layer.n_experts * hidden * kElement + n * hidden * (4 + kElement), 0);
}

// Rows that choose experts at random.
class ExpertRows {
 public:
  ExpertRows(Ops& ops, const BenchedExperts& layer, int32_t n_tokens, uint32_t seed)
      : n_tokens_(n_tokens) {
    std::mt19937 random(seed);
    std::vector<int32_t> order(static_cast<size_t>(layer.n_experts)), chosen;
    for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
    for (int32_t t = 0; t < n_tokens; ++t) {
      std::shuffle(order.begin(), order.end(), random);
      chosen.insert(chosen.end(), order.begin(), order.begin() + layer.n_used);
    }
    experts_ = *ops.Allocate(chosen.size() * sizeof(int32_t));
    ops.Upload(chosen.data(), experts_.data.get(), chosen.size() * sizeof(int32_t));
    std::sort(chosen.begin(), chosen.end());
    n_distinct_ = std::unique(chosen.begin(), chosen.end()) - chosen.begin();
  }

  int32_t n_tokens() const { return n_tokens_; }
  const int32_t* experts() const { return experts_.As<int32_t>(); }
  int64_t n_distinct() const { return n_distinct_; }

 private:
  int32_t n_tokens_;
  Buffer experts_;
  int64_t n_distinct_;
};

// Compares some rows of a large call with the same rows alone.
void CheckExperts(Bench& bench, const ExpertRows& rows, size_t hidden, float* out,
                  const std::function<void(const ExpertRows&, int32_t, int32_t)>& run) {
  Ops& ops = bench.ops();
  for (const int32_t row : {0, rows.n_tokens() / 2, rows.n_tokens() - 1}) {
    float* const at = out + static_cast<size_t>(row) * hidden;
    std::vector<std::vector<float>> results;
    for (const bool is_alone : {false, true}) {
      std::vector<float> result(hidden, 0);
      ops.Upload(result.data(), at, hidden * sizeof(float));
      run(rows, is_alone ? row : 0, is_alone ? 1 : rows.n_tokens());
      ops.Download(at, result.data(), hidden * sizeof(float));
      results.push_back(result);
    }
    double error = 0, size = 0;
    for (size_t i = 0; i < hidden; ++i) {
      error += std::abs(static_cast<double>(results[0][i]) - results[1][i]);
      size += std::abs(static_cast<double>(results[1][i]));
    }
    SC_CHECK(error < 0.01 * size);
  }
}

// Matrices of experts. Those of one product begin at different rows of the same random ones.
std::vector<Matrix> RandomExperts(Bench& bench, const BenchedExperts& layer, int32_t rows,
                                  int32_t cols) {
  std::vector<Matrix> matrices;
  if (layer.encoding == Encoding(Code::kBF16)) {
    for (int32_t e = 0; e < layer.n_experts; ++e)
      matrices.push_back(bench.RandomMatrix(rows, cols));
    return matrices;
  }
  constexpr int32_t kPiece = 512;
  const std::vector<StoredPart> stored =
      RandomParts({{kPiece + layer.n_experts, layer.encoding}}, cols);
  const MatrixPart part{rows, layer.encoding};
  const size_t row_bytes = RowBytes(layer.encoding, static_cast<size_t>(cols));
  for (int32_t e = 0; e < layer.n_experts; ++e) {
    matrices.push_back(*bench.ops().NewMatrix({&part, 1}, cols));
    for (int32_t row = 0; row < rows; row += kPiece) {
      bench.ops().PackStored(matrices.back(), row, std::min(kPiece, rows - row),
                             stored[0].bytes.data() + static_cast<size_t>(e) * row_bytes);
    }
  }
  return matrices;
}

void BenchLayer(Bench& bench, const BenchedExperts& layer) {
  constexpr int32_t kMostTokens = 16384;
  Ops& ops = bench.ops();
  const std::vector<Matrix> up = RandomExperts(bench, layer, 2 * layer.width, layer.hidden),
                            down = RandomExperts(bench, layer, layer.hidden, layer.width);
  const auto n_used = static_cast<size_t>(layer.n_used), hidden = static_cast<size_t>(layer.hidden),
             width = static_cast<size_t>(layer.width),
             n_experts = static_cast<size_t>(layer.n_experts);
  const Buffer x = bench.Random(kMostTokens * hidden, kType);
  const Buffer out = bench.Random(kMostTokens * hidden, DType::kF32);
  const Buffer weights = bench.Random(kMostTokens * n_used, DType::kF32);
  const Buffer up_bias = bench.Random(n_experts * 2 * width, DType::kF32),
               down_bias = bench.Random(n_experts * hidden, DType::kF32);
  const Buffer scratch = *ops.Allocate(ops.ExpertScratchBytes(
      {kMostTokens, layer.n_experts, layer.n_used, layer.hidden, layer.width}));
  // Rows [first, first + n) of `rows`.
  const auto run = [&](const ExpertRows& rows, int32_t first, int32_t n) {
    const auto at = static_cast<size_t>(first);
    ExpertMlpArgs args{.x = {x.As<uint16_t>() + at * hidden, kType},
                       .experts = rows.experts() + at * n_used,
                       .weights = weights.As<float>() + at * n_used,
                       .up = up,
                       .down = down,
                       .out = out.As<float>() + at * hidden,
                       .scratch = scratch.data.get(),
                       .n_tokens = n,
                       .n_used = layer.n_used,
                       .kind = Activation::kSilu};
    if (layer.has_biases) {
      args.clamped = {.limit = 7, .slope = 1.702f};
      args.up_bias = up_bias.As<float>();
      args.down_bias = down_bias.As<float>();
    }
    ops.ExpertMlp(args);
  };
  const double bytes_of_expert =
      static_cast<double>(EncodedBytes(layer.encoding, 2 * width, hidden) +
                          EncodedBytes(layer.encoding, hidden, width));
  for (const int32_t n_tokens : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384}) {
    std::vector<ExpertRows> rows;
    double n_distinct = 0;
    const int n_calls = n_tokens <= 16 ? 8 : 2;
    for (int i = 0; i < n_calls; ++i) {
      rows.emplace_back(ops, layer, n_tokens, static_cast<uint32_t>(i));
      n_distinct += static_cast<double>(rows.back().n_distinct()) / n_calls;
    }
    CheckExperts(bench, rows.front(), hidden, out.As<float>(), run);
    std::vector<std::function<void()>> calls;
    for (const ExpertRows& some : rows) calls.push_back([&] { run(some, 0, n_tokens); });
    bench.Line(fmt::format("experts {} rows {}", layer.name, n_tokens), bench.Seconds(calls),
               n_distinct * bytes_of_expert + n_tokens * hidden * (kElement + 8),
               2.0 * n_tokens * layer.n_used * 3 * layer.hidden * layer.width);
  }
}

}  // namespace

void BenchExperts(Bench& bench) {
  for (const BenchedExperts& layer :
       {BenchedExperts{"Qwen3-30B-A3B", 128, 8, 2048, 768}, {"Mixtral-8x7B", 8, 2, 4096, 14336}}) {
    for (const int32_t rows : {1, 16, 256, 4096}) BenchRouting(bench, layer, rows);
    BenchLayer(bench, layer);
  }
}

void BenchPackedExperts(Bench& bench) {
  const Encoding int4 = Grouped(Code::kInt4, DType::kBF16, 128);
  BenchLayer(bench, {"gpt-oss-120b mxfp4", 128, 4, 2880, 2880, MxFp4Encoding(), true});
  BenchLayer(bench, {"gpt-oss-20b mxfp4", 32, 4, 2880, 2880, MxFp4Encoding(), true});
  BenchLayer(bench, {"Qwen3-30B-A3B bf16", 128, 8, 2048, 768});
  BenchLayer(bench, {"Qwen3-30B-A3B int4", 128, 8, 2048, 768, int4});
  BenchLayer(bench, {"Qwen3-30B-A3B fp8 blocks", 128, 8, 2048, 768, Fp8Blocks()});
  BenchLayer(bench, {"Qwen3-30B-A3B q4_k", 128, 8, 2048, 768, Code::kQ4_K});
}

}  // namespace stagecoach::kernels
