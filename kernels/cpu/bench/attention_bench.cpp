#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/bench/cpu_bench.h"
#include "kernels/cpu/bench/random_matrix.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::kernels {

double BenchAttention(const Bench& bench, const AttentionShape& shape, int32_t n_seqs,
                      int32_t context, int32_t n_tokens, DType kv_dtype) {
  const int32_t stride = (context + 15) / 16, n_blocks = n_seqs * stride;
  const int32_t width = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim;
  const size_t kv_bytes =
      static_cast<size_t>(n_blocks) * KvBlockBytes(kv_dtype, shape.n_kv_heads, shape.head_dim, 1);
  const std::vector<float> all = RandomFloats(static_cast<size_t>(context) * width, 1.0f);
  std::vector<StepSeq> seqs;
  std::vector<NewBlock> blocks;
  std::vector<float> qkv;
  for (int32_t s = 0; s < n_seqs; ++s) {
    seqs.push_back({s, context - n_tokens, n_tokens});
    for (int32_t i = 0; i < stride; ++i) blocks.push_back({0, s, i, s * stride + i});
    qkv.insert(qkv.end(), all.end() - n_tokens * static_cast<ptrdiff_t>(width), all.end());
  }
  std::vector<float> out(qkv.size() / width * shape.n_heads * shape.head_dim);
  const auto new_step = [&](Ops& ops, int32_t n) {
    auto step = *ops.NewStepInputs(
        {.max_tokens = n * n_tokens, .max_slots = n_seqs, .max_blocks = stride, .groups = {{0}}});
    ops.BuildStep({.seqs = std::span(seqs).first(static_cast<size_t>(n)),
                   .new_blocks = blocks,
                   .n_tokens = n * n_tokens},
                  step.get());
    return step;
  };
  const auto attend = [&](Ops& ops, Buffer& k, Buffer& v, const StepInputs& step) {
    ops.Attention({.qkv = qkv.data(),
                   .kv = {k.data.get(), v.data.get(), kv_dtype},
                   .step = &step,
                   .group = 0,
                   .out = out.data(),
                   .n_heads = shape.n_heads,
                   .n_kv_heads = shape.n_kv_heads,
                   .head_dim = shape.head_dim,
                   .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim))});
  };
  const auto fill = [&](Ops& ops, Buffer& k, Buffer& v, int32_t n) {
    for (int32_t s = 0; s < n; ++s) {
      std::vector<float> copy = all;
      std::vector<int32_t> slots(context);
      for (int32_t p = 0; p < context; ++p) slots[p] = s * stride * 16 + p;
      ops.RopeAppend({.qkv = copy.data(),
                      .kv_slots = slots.data(),
                      .kv = {k.data.get(), v.data.get(), kv_dtype},
                      .n_tokens = context,
                      .n_heads = shape.n_heads,
                      .n_kv_heads = shape.n_kv_heads,
                      .head_dim = shape.head_dim});
    }
  };
  Buffer k = *bench.ops.Allocate(kv_bytes), v = *bench.ops.Allocate(kv_bytes);
  fill(bench.ops, k, v, n_seqs);
  const auto step = new_step(bench.ops, n_seqs);
  attend(bench.ops, k, v, *step);
  const size_t checked = static_cast<size_t>(n_tokens) * shape.n_heads * shape.head_dim;
  const std::vector<float> got(out.begin(), out.begin() + checked);
  auto reference = MakeReferenceOps();
  Buffer reference_k = *reference->Allocate(kv_bytes), reference_v = *reference->Allocate(kv_bytes);
  fill(*reference, reference_k, reference_v, 1);
  attend(*reference, reference_k, reference_v, *new_step(*reference, 1));
  CheckClose(got, std::vector<float>(out.begin(), out.begin() + checked));

  const double bandwidth = ReadBandwidth(bench.pool), peak = PeakFlops(bench.pool);
  const double seconds = bench.BestSeconds([&] { attend(bench.ops, k, v, *step); });
  const double bytes_rate = 2.0 * static_cast<double>(kv_bytes) / seconds;
  double visible = 0;  // query-key pairs
  for (int32_t t = context - n_tokens; t < context; ++t) visible += t + 1;
  const double flops = 4.0 * n_seqs * shape.n_heads * shape.head_dim * visible / seconds;
  fmt::print(
      "attention {}/{} x {:<3} {:<8} {:>2} x {:>4} of {:>5}: {:8.3f} ms  {:6.1f} GB/s ({:3.0f}% of "
      "{:.1f})  {:7.1f} GFLOP/s ({:3.0f}% of {:.0f})\n",
      shape.n_heads, shape.n_kv_heads, shape.head_dim, DTypeName(kv_dtype), n_seqs, n_tokens,
      context, seconds * 1e3, bytes_rate * 1e-9, 100 * bytes_rate / bandwidth, bandwidth * 1e-9,
      flops * 1e-9, 100 * flops / peak, peak * 1e-9);
  return seconds;
}

void BenchFp8Cache(const Bench& bench, const AttentionShape& shape, int32_t n_seqs, int32_t context,
                   int32_t n_tokens) {
  const double bf16 = BenchAttention(bench, shape, n_seqs, context, n_tokens);
  const double fp8 = BenchAttention(bench, shape, n_seqs, context, n_tokens, DType::kFp8);
  if (bench.json == nullptr) return;
  *bench.json << fmt::format(
      "{{\"name\": \"cpu_attention_fp8/{}/{} x {}/{} x {} of {}\", \"value\": {:.3f}, \"unit\": "
      "\"ms, FP8 cache\", \"reference\": \"bfloat16 cache, {:.3f} ms\", \"ratio\": {:.3f}}}\n",
      shape.n_heads, shape.n_kv_heads, shape.head_dim, n_seqs, n_tokens, context, fp8 * 1e3,
      bf16 * 1e3, fp8 / bf16);
}

// Latent attention of a prompt with DeepSeek's sizes, in both forms: absorbed, as it runs, and with
// the keys and values of all heads. The second form's keys and values have the mean of their sizes,
// 192 and 128, which takes as many multiply-adds.
void BenchLatents(const Bench& bench, int32_t n_heads, int32_t n_tokens) {
  constexpr int32_t kRank = 512, kNope = 128, kRope = 64, kValue = 128, kDim = kRank + kRope;
  constexpr int32_t kMean = (kNope + kRope + kValue) / 2;
  const auto floats = [&](int64_t width) {
    return RandomFloats(static_cast<size_t>(n_tokens * width), 1.0f);
  };
  const auto matrix = [&](int32_t rows, int32_t cols) {
    Matrix w = *bench.ops.NewMatrix(rows, cols, DType::kBF16);
    const std::vector<float> values = RandomFloats(static_cast<size_t>(rows) * cols, 0.05f);
    bench.ops.PackRows(w, 0, rows, values.data(), DType::kF32);
    return w;
  };
  const int32_t n_blocks = (n_tokens + kBlockTokens - 1) / kBlockTokens;
  const StepSeq seq{0, 0, n_tokens};
  std::vector<NewBlock> blocks;
  blocks.reserve(static_cast<size_t>(n_blocks));
  for (int32_t i = 0; i < n_blocks; ++i) blocks.push_back({0, 0, i, i});
  const auto step = *bench.ops.NewStepInputs(
      {.max_tokens = n_tokens, .max_slots = 1, .max_blocks = n_blocks, .groups = {{0}}});
  bench.ops.BuildStep({.seqs = {&seq, 1}, .new_blocks = blocks, .n_tokens = n_tokens}, step.get());
  const auto cache = [&](int32_t heads, int32_t dim) {
    const size_t bytes = KvBlockBytes(DType::kBF16, heads, dim, 1) * static_cast<size_t>(n_blocks);
    return *bench.ops.AllocateKv(bytes);
  };

  const Matrix keys = matrix(n_heads * kRank, kNope), values = matrix(n_heads * kValue, kRank);
  const std::vector<float> q = floats(int64_t{n_heads} * (kNope + kRope));
  std::vector<float> queries = floats(int64_t{n_heads} * kDim);
  std::vector<float> out = floats(int64_t{n_heads} * kRank);
  std::vector<float> heads = floats(int64_t{n_heads} * kValue);
  const Buffer latents = cache(1, kDim);
  const auto product = [&](const float* x, const Matrix& w, float* y, int32_t x_dim,
                           int32_t y_dim) {
    bench.ops.HeadGemm({.x = x,
                        .w = &w,
                        .y = y,
                        .n_rows = n_tokens,
                        .n_heads = n_heads,
                        .x_dim = x_dim,
                        .y_dim = y_dim});
  };
  const double absorbed = bench.BestSeconds([&] {
    product(q.data(), keys, queries.data(), kNope + kRope, kDim);
    bench.ops.Attention({.qkv = queries.data(),
                         .kv = {latents.data.get(), nullptr, DType::kBF16},
                         .step = step.get(),
                         .group = 0,
                         .out = out.data(),
                         .n_heads = n_heads,
                         .n_kv_heads = 1,
                         .head_dim = kDim,
                         .scale = 0.05f,
                         .kv_of_row = KvOfRow::kLatents,
                         .value_dim = kRank});
    product(out.data(), values, heads.data(), kRank, kValue);
  });

  const Matrix up = matrix(n_heads * (kNope + kValue), kRank);
  const std::vector<float> latent = floats(kRank), mean_q = floats(int64_t{n_heads} * kMean);
  std::vector<float> expanded = floats(int64_t{n_heads} * (kNope + kValue));
  const Buffer k = cache(n_heads, kMean), v = cache(n_heads, kMean);
  const double by_heads = bench.BestSeconds([&] {
    bench.ops.Gemm({.x = latent.data(), .w = &up, .y = expanded.data(), .n_rows = n_tokens});
    bench.ops.Attention({.qkv = mean_q.data(),
                         .kv = {k.data.get(), v.data.get(), DType::kBF16},
                         .step = step.get(),
                         .group = 0,
                         .out = out.data(),
                         .n_heads = n_heads,
                         .n_kv_heads = n_heads,
                         .head_dim = kMean,
                         .scale = 0.05f,
                         .kv_of_row = KvOfRow::kNone});
  });
  fmt::print(
      "latents {:>3} heads, prompt of {:>4}: {:8.3f} ms absorbed, {:8.3f} by heads ({:.2f})\n",
      n_heads, n_tokens, absorbed * 1e3, by_heads * 1e3, absorbed / by_heads);
  if (bench.json == nullptr) return;
  *bench.json << fmt::format(
      "{{\"name\": \"cpu_latents/{} heads/prompt of {}\", \"value\": {:.3f}, \"unit\": \"ms, "
      "absorbed\", \"reference\": \"keys and values of all heads, {:.3f} ms\", \"ratio\": "
      "{:.3f}}}\n",
      n_heads, n_tokens, absorbed * 1e3, by_heads * 1e3, absorbed / by_heads);
}

}  // namespace stagecoach::kernels
