// Latent attention and the products with the heads' matrices, for shapes of published models.
#include <cmath>

#include "common/float_convert.h"
#include "kernels/cuda/bench/bench.h"

namespace stagecoach::kernels {
namespace {

struct Latents {
  const char* model;
  int32_t n_heads, rank;
  int32_t nope_dim = 128;  // of a head

  int32_t dim() const { return rank + 64; }
};

// n_seqs sequences with `context` positions each; the last n_tokens positions attend.
struct LatentStep {
  const Latents& of;
  int32_t n_seqs, context, n_tokens;

  int32_t blocks_each() const { return (context + kBlockTokens - 1) / kBlockTokens; }
  // Scattered blocks, as after some time of serving.
  int32_t BlockAt(int32_t seq, int32_t i) const {
    return static_cast<int32_t>((int64_t{seq} * blocks_each() + i) * 7919 %
                                (n_seqs * blocks_each()));
  }
  int32_t n_rows() const { return n_seqs * n_tokens; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(of.dim())); }
};

std::vector<float> Numbers(Ops& ops, const void* from, size_t n) {
  std::vector<uint16_t> stored(n);
  ops.Download(from, stored.data(), n * sizeof(uint16_t));
  std::vector<float> numbers(n);
  for (size_t i = 0; i < n; ++i) numbers[i] = LoadElement(stored.data(), kType, i);
  return numbers;
}

// The last row's last head, computed here.
void CheckLastHead(Ops& ops, const LatentStep& step, const Buffer& queries, const Buffer& cache,
                   const Buffer& out) {
  const auto dim = static_cast<size_t>(step.of.dim()), rank = static_cast<size_t>(step.of.rank);
  const size_t head = static_cast<size_t>(step.n_rows() * step.of.n_heads) - 1;
  const auto at = [&](const Buffer& of, size_t element) {
    return of.As<char>() + element * sizeof(uint16_t);
  };
  const std::vector<float> q = Numbers(ops, at(queries, head * dim), dim);
  std::vector<double> sums(rank);
  double total = 0;
  for (int32_t i = 0; i < step.blocks_each(); ++i) {
    const auto block = static_cast<size_t>(step.BlockAt(step.n_seqs - 1, i));
    const std::vector<float> keys =
        Numbers(ops, at(cache, block * kBlockTokens * dim), size_t{kBlockTokens} * dim);
    const int32_t n_keys = std::min(kBlockTokens, step.context - i * kBlockTokens);
    for (size_t k = 0; k < static_cast<size_t>(n_keys); ++k) {
      double score = 0;
      for (size_t e = 0; e < dim; ++e) score += q[e] * keys[k * dim + e];
      const double weight = std::exp(score * step.scale());
      total += weight;
      for (size_t e = 0; e < rank; ++e) sums[e] += weight * keys[k * dim + e];
    }
  }
  const std::vector<float> found = Numbers(ops, at(out, head * rank), rank);
  for (size_t e = 0; e < rank; ++e) SC_CHECK(std::abs(found[e] - sums[e] / total) < 0.02);
}

void BenchAttention(Bench& bench, const LatentStep& of) {
  Ops& ops = bench.ops();
  const auto dim = static_cast<size_t>(of.of.dim()), rank = static_cast<size_t>(of.of.rank);
  const size_t n_blocks = static_cast<size_t>(of.n_seqs * of.blocks_each());
  const size_t layer_bytes = KvBlockBytes(kType, 1, of.of.dim(), 1) * n_blocks;
  const size_t n_layers = std::clamp<size_t>(kColdBytes / layer_bytes, 1, 16);
  std::vector<Buffer> caches;
  for (size_t i = 0; i < n_layers; ++i) {
    caches.push_back(bench.Random(n_blocks * kBlockTokens * dim, kType));
  }
  const auto step = *ops.NewStepInputs({.max_tokens = of.n_rows(),
                                        .max_slots = of.n_seqs,
                                        .max_blocks = of.blocks_each(),
                                        .groups = {{.window = 0, .latent_rank = of.of.rank}},
                                        .n_heads = of.of.n_heads,
                                        .n_kv_heads = 1,
                                        .head_dim = of.of.dim(),
                                        .act_dtype = kType,
                                        .kv_dtype = kType});
  std::vector<StepSeq> seqs;
  std::vector<NewBlock> blocks;
  for (int32_t s = 0; s < of.n_seqs; ++s) {
    seqs.push_back({s, of.context - of.n_tokens, of.n_tokens});
    for (int32_t i = 0; i < of.blocks_each(); ++i) blocks.push_back({0, s, i, of.BlockAt(s, i)});
  }
  ops.BuildStep({.seqs = seqs, .new_blocks = blocks, .n_tokens = of.n_rows()}, step.get());
  const size_t heads = static_cast<size_t>(of.n_rows() * of.of.n_heads);
  const Buffer queries = bench.Random(heads * dim, kType), out = bench.Random(heads * rank, kType);
  std::vector<std::function<void()>> calls;
  for (const Buffer& cache : caches) {
    calls.push_back([&] {
      ops.Attention({.qkv = {queries.data.get(), kType},
                     .kv = {cache.data.get(), nullptr, kType},
                     .step = step.get(),
                     .group = 0,
                     .out = {out.data.get(), kType},
                     .n_heads = of.of.n_heads,
                     .n_kv_heads = 1,
                     .head_dim = of.of.dim(),
                     .scale = of.scale(),
                     .softcap = 0,
                     .window = 0,
                     .kv_of_row = KvOfRow::kLatents,
                     .value_dim = of.of.rank});
    });
  }
  calls.front()();
  CheckLastHead(ops, of, queries, caches.front(), out);
  const double seen = of.n_tokens * (of.context - (of.n_tokens - 1) / 2.0);  // query-key pairs
  bench.Line(fmt::format("latents {} heads: {} x {} of {}", of.of.n_heads, of.n_seqs, of.n_tokens,
                         of.context),
             bench.Seconds(calls),
             static_cast<double>(of.n_seqs) * of.context * of.of.dim() * kElement,
             2.0 * of.n_seqs * of.of.n_heads * (of.of.dim() + of.of.rank) * seen);
}

// Queries to the latents' space: nope_dim inputs and `rank` outputs per head.
void BenchHeadGemm(Bench& bench, const Latents& of, int32_t n_rows) {
  Ops& ops = bench.ops();
  const auto heads = static_cast<size_t>(n_rows * of.n_heads);
  const int32_t x_dim = of.nope_dim + 64;
  const Buffer x = bench.Random(heads * static_cast<size_t>(x_dim), kType);
  const Buffer y = bench.Random(heads * static_cast<size_t>(of.dim()), kType);
  const double weights = static_cast<double>(of.n_heads) * of.rank * of.nope_dim;
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < 16; ++i) {
    matrices.push_back(bench.RandomMatrix(of.n_heads * of.rank, of.nope_dim));
  }
  std::vector<std::function<void()>> calls;
  for (const Matrix& w : matrices) {
    calls.push_back([&] {
      ops.HeadGemm({.x = {x.data.get(), kType},
                    .w = &w,
                    .y = {y.data.get(), kType},
                    .n_rows = n_rows,
                    .n_heads = of.n_heads,
                    .x_dim = x_dim,
                    .y_dim = of.dim()});
    });
  }
  const double rows = static_cast<double>(heads) * (of.nope_dim + of.rank);
  bench.Line(
      fmt::format("head products {} x {} x {} rows {}", of.n_heads, of.rank, of.nope_dim, n_rows),
      bench.Seconds(calls), (weights + rows) * kElement, 2 * weights * n_rows);
}

}  // namespace

void BenchLatents(Bench& bench) {
  for (const Latents& of :
       {Latents{"DeepSeek V3", 128, 512}, Latents{"GLM-4.7-Flash", 20, 512},
        Latents{"DeepSeek V2-Lite", 16, 512}, Latents{"Mistral Small 4", 32, 256}}) {
    fmt::print("{}\n", of.model);
    BenchAttention(bench, {of, 1, 384, 1});
    BenchAttention(bench, {of, 1, 8192, 1});
    BenchAttention(bench, {of, 1, 30000, 1});
    BenchAttention(bench, {of, 64, 1024, 1});
    BenchAttention(bench, {of, 256, 1280, 1});
    BenchAttention(bench, {of, 1, 2048, 2048});
    BenchAttention(bench, {of, 1, 8192, 8192});
    BenchAttention(bench, {of, 1, 30063, 63});
    for (const int32_t n_rows : {1, 64, 256, 2048}) BenchHeadGemm(bench, of, n_rows);
  }
}

}  // namespace stagecoach::kernels
