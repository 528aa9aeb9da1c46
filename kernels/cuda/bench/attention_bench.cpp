#include "kernels/cuda/bench/attention_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "common/check.h"

namespace stagecoach::kernels {

void BenchAttention(Bench& bench, const Heads& heads, int32_t n_seqs, int32_t context,
                    int32_t n_tokens) {
  const DType dtype = heads.dtype;
  const int32_t blocks_each = (context + 15) / 16, n_blocks = n_seqs * blocks_each;
  const int32_t width = (heads.n_heads + 2 * heads.n_kv_heads) * heads.head_dim;
  const DType kv_dtype = heads.kv_dtype();
  const size_t cache_heads = static_cast<size_t>(n_blocks * heads.n_kv_heads);
  const size_t head_bytes = KvBlockBytes(kv_dtype, 1, heads.head_dim, 1);
  const size_t n_layers = std::clamp<size_t>(kColdBytes / (2 * cache_heads * head_bytes), 1, 16);
  std::vector<Buffer> k, v;
  for (size_t i = 0; i < n_layers; ++i) {
    k.push_back(bench.RandomKv(cache_heads, heads.head_dim, kv_dtype));
    v.push_back(bench.RandomKv(cache_heads, heads.head_dim, kv_dtype));
  }
  StepLimits limits{.max_tokens = n_seqs * n_tokens,
                    .max_slots = n_seqs,
                    .max_blocks = blocks_each,
                    .groups = {{heads.window}},
                    .n_heads = heads.n_heads,
                    .n_kv_heads = heads.n_kv_heads,
                    .head_dim = heads.head_dim,
                    .act_dtype = dtype,
                    .kv_dtype = kv_dtype};
  // Scratch as in a stage, where sequences may be as long as the model allows.
  StepLimits of_stage = limits;
  of_stage.max_blocks = std::max(limits.max_blocks, kUsualBlocks);
  limits.attention_scratch_bytes = bench.ops().AttentionScratchBytes(of_stage);
  Buffer scratch;
  if (limits.attention_scratch_bytes > 0) {
    scratch = *bench.ops().Allocate(limits.attention_scratch_bytes);
    limits.attention_scratch = scratch.data.get();
  }
  const auto step = *bench.ops().NewStepInputs(limits);
  std::vector<StepSeq> seqs;
  std::vector<NewBlock> blocks;
  for (int32_t s = 0; s < n_seqs; ++s) {
    seqs.push_back({s, context - n_tokens, n_tokens});
    // Scattered blocks, as after some time of serving.
    for (int32_t i = 0; i < blocks_each; ++i) {
      const int64_t place = int64_t{s} * blocks_each + i;
      blocks.push_back({0, s, i, static_cast<int32_t>(place * 7919 % n_blocks)});
    }
  }
  bench.ops().BuildStep({.seqs = seqs, .new_blocks = blocks, .n_tokens = n_seqs * n_tokens},
                        step.get());
  const size_t rows = static_cast<size_t>(n_seqs * n_tokens);
  const Buffer qkv = bench.Random(rows * static_cast<size_t>(width), dtype);
  const Buffer out =
      bench.Random(rows * static_cast<size_t>(heads.n_heads * heads.head_dim), dtype);
  const Buffer sinks = bench.Random(static_cast<size_t>(heads.n_heads), DType::kF32);
  std::vector<std::function<void()>> calls;
  for (size_t i = 0; i < n_layers; ++i) {
    calls.push_back([&, i] {
      bench.ops().Attention({.qkv = {qkv.data.get(), dtype},
                             .kv = {k[i].data.get(), v[i].data.get(), kv_dtype},
                             .step = step.get(),
                             .group = 0,
                             .out = {out.data.get(), dtype},
                             .n_heads = heads.n_heads,
                             .n_kv_heads = heads.n_kv_heads,
                             .head_dim = heads.head_dim,
                             .scale = 1 / std::sqrt(static_cast<float>(heads.head_dim)),
                             .softcap = 0,
                             .window = heads.window,
                             .sinks = heads.has_sinks ? sinks.As<float>() : nullptr});
    });
  }
  const auto seen = [&](int32_t position) {
    return heads.window > 0 ? std::min(position + 1, heads.window) : position + 1;
  };
  double visible = 0;  // query-key pairs
  for (int32_t t = context - n_tokens; t < context; ++t) visible += seen(t);
  const double keys = heads.window > 0 ? std::min(context, heads.window + n_tokens) : context;
  bench.Line(fmt::format("{}: {} x {} of {}", heads.Name(), n_seqs, n_tokens, context),
             bench.Seconds(calls),
             2 * n_seqs * keys * heads.n_kv_heads * static_cast<double>(head_bytes) / kBlockTokens,
             4.0 * n_seqs * heads.n_heads * heads.head_dim * visible);
}

void BenchFp8Cache(Bench& bench) {
  for (Heads heads : {Heads{32, 8, 128}, Heads{32, 32, 128}, Heads{32, 8, 64}}) {
    for (const bool fp8_cache : {false, true}) {
      heads.fp8_cache = fp8_cache;
      BenchAttention(bench, heads, 1, 8192, 1);
      BenchAttention(bench, heads, 1, 30000, 1);
      BenchAttention(bench, heads, 64, 1024, 1);
      BenchAttention(bench, heads, 256, 400, 1);
      BenchAttention(bench, heads, 256, 1280, 1);
      BenchAttention(bench, heads, 1, 8192, 8192);
      for (const int32_t n : {16, 63, 256, 1024}) BenchAttention(bench, heads, 1, 30000 + n, n);
    }
  }
}

namespace {

void BenchCliff(Bench& bench, const Heads& heads, int32_t context,
                const std::vector<int32_t>& sizes) {
  for (const int32_t n : sizes) BenchAttention(bench, heads, 1, context + n, n);
}

}  // namespace

void BenchCliffs(Bench& bench) {
  constexpr Heads kMistral{32, 8, 128};
  BenchCliff(bench, kMistral, 30000, {1,  2,  4,   8,   15,  16,  17,  31,  32,  48,  63,   64,
                                      65, 96, 128, 192, 256, 257, 320, 384, 512, 768, 1024, 2048});
  BenchCliff(bench, kMistral, 8000, {1, 2, 15, 16, 32, 63, 64, 128, 256, 512, 1024});
  BenchCliff(bench, kMistral, 1000, {1, 2, 15, 16, 32, 63, 64, 128, 256, 512, 1024});
  const std::vector<int32_t> kSizes = {1, 2, 16, 63, 64, 128, 256, 512, 1024, 4096};
  for (const Heads& heads :
       {Heads{32, 8, 128, DType::kF16}, Heads{32, 8, 128, kType, 4096}, Heads{32, 32, 128},
        Heads{32, 8, 64}, Heads{32, 8, 64, DType::kF16}, Heads{32, 32, 80}, Heads{16, 8, 256},
        Heads{16, 8, 256, kType, 4096}}) {
    BenchCliff(bench, heads, 30000, kSizes);
  }
  // More keys than fit into the gather buffer at once.
  BenchAttention(bench, kMistral, 3, 31024, 1024);
  BenchAttention(bench, kMistral, 1, 100000, 4096);
}

}  // namespace stagecoach::kernels
