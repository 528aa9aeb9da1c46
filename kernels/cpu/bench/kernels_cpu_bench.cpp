// Speed of the CPU kernels relative to the machine's limits (a roofline): memory-bound kernels
// relative to the read bandwidth, compute-bound ones to the peak rate of multiply-adds. Every
// result is checked before it is timed. Shapes: Gemma-3-270M; of experts, Qwen3-30B-A3B; of FP8
// caches, Llama-3-8B and one with a KV head per query head.
//
//   kernels_cpu_bench [--threads N] [--seconds S] [--only
//   gemm|quantized|experts|attention|fp8_kv|latents|recurrent|kv|sample|bandwidth]
//                     [--json FILE] [--cpu-time]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/encoding/blocks.h"
#include "common/encoding/rows.h"
#include "kernels/cpu/bench/machine_peak.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/reference/reference_ops.h"
#include "kernels/testing/rounded_inputs.h"

namespace stagecoach::kernels {
namespace {

std::vector<float> RandomFloats(size_t n, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> block(std::min<size_t>(n, 1 << 20)), values(n);
  for (float& value : block) value = normal(random);
  for (size_t i = 0; i < n; ++i) values[i] = block[i % block.size()];
  return values;
}

void CheckClose(const std::vector<float>& values, const std::vector<float>& expected) {
  SC_CHECK(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    SC_CHECK(std::abs(values[i] - expected[i]) < 1e-4f * (4 + std::abs(expected[i])));
  }
}

struct Bench {
  Ops& ops;
  ThreadPool& pool;
  double seconds_each;
  std::ostream* json;  // lines of some measurements (--json); null: none

  // The best time of a call, because other processes can only make it slower.
  template <typename F>
  double BestSeconds(const F& call) const {
    double best = 1e30;
    const double end = BenchSeconds() + seconds_each;
    for (int calls = 0; calls < 3 || BenchSeconds() < end; ++calls) {
      const double start = BenchSeconds();
      call();
      best = std::min(best, BenchSeconds() - start);
    }
    SC_CHECK(ops.Synchronize().ok());
    return best;
  }
};

// Blocks with random codes and small scales.
std::vector<uint8_t> RandomBlocks(Code type, size_t n_elements) {
  const size_t block_bytes = BlockBytes(type);
  std::vector<uint8_t> bytes(n_elements / FormOf(type).elements * block_bytes);
  std::mt19937 random(1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  constexpr uint16_t kScale = 0x0400;  // 2^-14
  for (size_t i = 0; i < bytes.size(); i += block_bytes) {
    std::memcpy(bytes.data() + i + (type == Code::kQ6_K ? 208 : 0), &kScale, 2);
    if (FormOf(type).has_minima) std::memcpy(bytes.data() + i + 2, &kScale, 2);
  }
  return bytes;
}

// Random codes, zeros of 8, and scales that keep the weights near 1 / sqrt(4096).
std::vector<uint8_t> RandomGroups(const Encoding& encoding, int32_t n, int32_t k) {
  const size_t cols = static_cast<size_t>(k), row_bytes = RowBytes(encoding, cols);
  std::vector<uint8_t> bytes(static_cast<size_t>(n) * row_bytes);
  std::mt19937 random(1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const float scale = encoding.code == Code::kInt4 ? 0x1p-8f : 0x1p-13f;
  for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
    const GroupedRow<uint8_t> row = GroupedRowAt(encoding, cols, bytes.data() + r * row_bytes);
    for (size_t g = 0; g < GroupCount(encoding, cols); ++g) {
      if (encoding.code == Code::kMxFp4) {
        row.scales[g] = 127 - 7;
        continue;
      }
      if (encoding.code == Code::kNvFp4) {
        row.scales[g] = 0x38;  // 1
        StoreElement(row.matrix_scale, DType::kF32, 0, 0x1p-7f);
        continue;
      }
      StoreElement(row.scales, encoding.scale, g, scale);
      if (encoding.has_zeros) row.zeros[g] = 8;
    }
  }
  return bytes;
}

Encoding Grouped(Code code, DType scale, int32_t group, bool has_zeros) {
  Encoding encoding(code);
  encoding.scale = scale;
  encoding.group = group;
  encoding.has_zeros = has_zeros;
  encoding.rows_share_scales = code == Code::kFp8 && group > 0;
  return encoding;
}

Matrix MakeMatrix(Ops& ops, int32_t n, int32_t k, const Encoding& type) {
  const size_t elements = static_cast<size_t>(n) * static_cast<size_t>(k);
  if (const std::optional<DType> plain = PlainDType(type.code)) {
    const std::vector<float> weights = RandomFloats(elements, 1 / std::sqrt(static_cast<float>(k)));
    Matrix w = *ops.NewMatrix(n, k, *plain);
    ops.PackRows(w, 0, n, weights.data(), DType::kF32);
    return w;
  }
  const MatrixPart part{n, type};
  Matrix w = *ops.NewMatrix(std::span(&part, 1), k);
  ops.PackStored(
      w, 0, n,
      (IsGrouped(type.code) ? RandomGroups(type, n, k) : RandomBlocks(type.code, elements)).data());
  return w;
}

void BenchGemm(const Bench& bench, int32_t n, int32_t k, const Encoding& type,
               int32_t most_rows = 512) {
  const Matrix w = MakeMatrix(bench.ops, n, k, type);
  const std::vector<float> x = RandomFloats(512 * static_cast<size_t>(k), 1.0f);
  std::vector<float> one(n);
  bench.ops.Gemm({.x = x.data(), .w = &w, .y = one.data(), .n_rows = 1});
  {
    auto reference = MakeReferenceOps();
    const Matrix reference_w = MakeMatrix(*reference, n, k, type);
    std::vector<float> expected(n);
    const std::vector<float> rounded =
        RoundedInputs(bench.ops, type.code, {x.begin(), x.begin() + k});
    reference->Gemm({.x = rounded.data(), .w = &reference_w, .y = expected.data(), .n_rows = 1});
    CheckClose(one, expected);
  }
  for (const int32_t rows : {1, 2, 4, 6, 16, 64, 512}) {
    if (rows > most_rows) break;
    std::vector<float> y(static_cast<size_t>(rows) * n);
    const auto call = [&] {
      bench.ops.Gemm({.x = x.data(), .w = &w, .y = y.data(), .n_rows = rows});
    };
    call();
    SC_CHECK(std::memcmp(y.data(), one.data(), one.size() * sizeof(float)) == 0);
    const double bandwidth = ReadBandwidth(bench.pool), peak = PeakFlops(bench.pool);
    const double seconds = bench.BestSeconds(call);
    const double bytes_rate = static_cast<double>(w.buffer.bytes) / seconds;
    const double flops = 2.0 * rows * n * static_cast<double>(k) / seconds;
    fmt::print(
        "gemm {:>6} x {:<5} {:<32} rows {:>3}: {:8.3f} ms  {:6.1f} GB/s ({:4.0f}% of {:.1f})"
        "  {:7.1f} GFLOP/s ({:3.0f}% of {:.0f})\n",
        n, k, EncodingName(type), rows, seconds * 1e3, bytes_rate * 1e-9,
        100 * bytes_rate / bandwidth, bandwidth * 1e-9, flops * 1e-9, 100 * flops / peak,
        peak * 1e-9);
    if (rows > 1 || bench.json == nullptr) continue;
    *bench.json << fmt::format(
        "{{\"name\": \"cpu_gemm/{} x {}/{}/1_row\", \"value\": {:.2f}, \"unit\": \"GB/s of packed "
        "weights\", \"reference\": \"read bandwidth, {:.2f} GB/s\", \"ratio\": {:.3f}, "
        "\"packed_over_stored\": {:.4f}}}\n",
        n, k, EncodingName(type), bytes_rate * 1e-9, bandwidth * 1e-9, bytes_rate / bandwidth,
        static_cast<double>(w.buffer.bytes) /
            static_cast<double>(
                EncodedBytes(type, static_cast<uint64_t>(n), static_cast<uint64_t>(k))));
  }
}

// The experts of a layer of Qwen3-30B-A3B, and which of them each row uses: rows share none more
// often than by chance. All have the same weights, each in its own memory.
void BenchExperts(const Bench& bench, const Encoding& up_type, const Encoding& down_type) {
  constexpr int32_t kExperts = 128, kUsed = 8, kHidden = 2048, kWidth = 768, kMostRows = 512;
  // n_copies: matrices in memory of their own, all in one allocation as in a worker.
  const auto make = [&](Ops& ops, int32_t n_copies, const Encoding& type, int32_t n, int32_t k) {
    const Matrix first = MakeMatrix(ops, n, k, type);
    const size_t bytes = (first.buffer.bytes + 255) / 256 * 256;
    const Buffer all = *ops.Allocate(bytes * static_cast<size_t>(n_copies));
    std::vector<Matrix> matrices(kExperts, first);
    for (size_t e = 0; e < static_cast<size_t>(n_copies); ++e) {
      char* const at = all.As<char>() + e * bytes;
      std::memcpy(at, first.buffer.data.get(), first.buffer.bytes);
      matrices[e].buffer.data = std::shared_ptr<void>(all.data, at);
    }
    return matrices;
  };
  const std::vector<float> x = RandomFloats(size_t{kMostRows} * kHidden, 1.0f);
  const std::vector<float> weights(size_t{kMostRows} * kUsed, 1.0f / kUsed);
  std::vector<int32_t> order(kExperts), chosen;
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (int32_t row = 0; row < kMostRows; ++row) {
    std::ranges::shuffle(order, random);
    chosen.insert(chosen.end(), order.begin(), order.begin() + kUsed);
  }
  const auto run = [&](Ops& ops, const std::vector<Matrix>& up, const std::vector<Matrix>& down,
                       int32_t first, int32_t rows, std::vector<float>& out,
                       const Buffer& scratch) {
    ops.ExpertMlp({.x = x.data() + size_t{kHidden} * first,
                   .experts = chosen.data() + size_t{kUsed} * first,
                   .weights = weights.data(),
                   .up = up,
                   .down = down,
                   .out = out.data(),
                   .scratch = scratch.data.get(),
                   .n_tokens = rows,
                   .n_used = kUsed,
                   .kind = Activation::kSilu,
                   .clears_out = true});
  };
  const auto scratch_of = [&](Ops& ops) {
    return *ops.Allocate(ops.ExpertScratchBytes({kMostRows, kExperts, kUsed, kHidden, kWidth}));
  };
  std::vector<float> one(kHidden);
  const auto up = make(bench.ops, kExperts, up_type, 2 * kWidth, kHidden);
  const auto down = make(bench.ops, kExperts, down_type, kHidden, kWidth);
  const Buffer scratch = scratch_of(bench.ops);
  run(bench.ops, up, down, 0, 1, one, scratch);
  if (!RoundsInputs(bench.ops, up_type.code)) {
    auto reference = MakeReferenceOps();
    std::vector<float> expected(kHidden);
    run(*reference, make(*reference, 0, up_type, 2 * kWidth, kHidden),
        make(*reference, 0, down_type, kHidden, kWidth), 0, 1, expected, scratch_of(*reference));
    CheckClose(one, expected);
  }
  for (const int32_t rows : {1, 4, 16, 64, kMostRows}) {
    std::vector<float> out(static_cast<size_t>(rows) * kHidden);
    run(bench.ops, up, down, 0, rows, out, scratch);
    SC_CHECK(std::memcmp(out.data(), one.data(), one.size() * sizeof(float)) == 0);
    const double bandwidth = ReadBandwidth(bench.pool), peak = PeakFlops(bench.pool);
    int32_t first = 0;  // other rows in each call, so that no cache holds their experts
    const double seconds = bench.BestSeconds([&] {
      run(bench.ops, up, down, first, rows, out, scratch);
      first = first + 2 * rows <= kMostRows ? first + rows : 0;
    });
    std::vector<bool> used(kExperts);
    for (int32_t i = 0; i < rows * kUsed; ++i) used[chosen[i]] = true;
    const double bytes = static_cast<double>(std::ranges::count(used, true)) *
                         static_cast<double>(up[0].buffer.bytes + down[0].buffer.bytes);
    const double flops = 6.0 * rows * kUsed * kWidth * kHidden / seconds;
    fmt::print(
        "experts {:<5} {:<5} rows {:>3}: {:8.3f} ms  {:6.1f} GB/s ({:3.0f}% of {:.1f})  {:7.1f} "
        "GFLOP/s ({:3.0f}% of {:.0f})\n",
        EncodingName(up_type), EncodingName(down_type), rows, seconds * 1e3, bytes / seconds * 1e-9,
        100 * bytes / seconds / bandwidth, bandwidth * 1e-9, flops * 1e-9, 100 * flops / peak,
        peak * 1e-9);
  }
}

struct AttentionShape {
  int32_t n_heads, n_kv_heads, head_dim;
};

// n_seqs sequences with `context` positions each; the last n_tokens positions attend. Returns the
// seconds of a call.
double BenchAttention(const Bench& bench, const AttentionShape& shape, int32_t n_seqs,
                      int32_t context, int32_t n_tokens, DType kv_dtype = DType::kBF16) {
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

// An FP8 cache beside one in bfloat16.
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

// A recurrent layer of Qwen3-Next-80B-A3B beside its products: both projections, and as many
// multiply-adds at the same rate as 10 experts and the shared one take.
void BenchDeltaNet(const Bench& bench, int32_t n_seqs, int32_t n_tokens) {
  const RecurrentShape shape{.n_key_heads = 16,
                             .n_value_heads = 32,
                             .key_dim = 128,
                             .value_dim = 128,
                             .conv_width = 4,
                             .by_key_head = true};
  constexpr int32_t kHidden = 2048, kExpertRows = 11 * 3 * 512;
  const int32_t n_rows = n_seqs * n_tokens;
  const auto floats = [](int64_t n) { return RandomFloats(static_cast<size_t>(n), 1.0f); };
  const auto projected = floats(int64_t{n_rows} * shape.projected_width());
  const auto conv = floats(int64_t{shape.n_channels()} * shape.conv_width);
  const auto numbers = floats(shape.n_value_heads), norm = floats(shape.value_dim);
  std::vector<StepSeq> seqs;
  for (int32_t s = 0; s < n_seqs; ++s) seqs.push_back({s, 0, n_tokens});
  std::vector<float> out(static_cast<size_t>(n_rows) * shape.values_width());
  const auto run = [&](Ops& ops, std::vector<float>& x, std::vector<float>& states,
                       std::vector<float>& mixed, const StepInputs& step) {
    ops.Recurrence({.shape = shape,
                    .projected = x.data(),
                    .conv = conv.data(),
                    .a_log = numbers.data(),
                    .dt_bias = numbers.data(),
                    .norm = norm.data(),
                    .norm_eps = 1e-6f,
                    .step = &step,
                    .states = states.data(),
                    .saves = {},
                    .mixed = mixed.data(),
                    .out = out.data()});
  };
  std::vector<float> states(static_cast<size_t>(n_seqs * shape.state_elements()));
  std::vector<float> mixed(static_cast<size_t>(n_rows) * shape.n_channels()), x = projected;
  const auto new_step = [&](Ops& ops) {
    auto step = *ops.NewStepInputs({.max_tokens = n_rows, .max_slots = n_seqs, .max_blocks = 1});
    ops.BuildStep({.seqs = seqs, .n_tokens = n_rows}, step.get());
    return step;
  };
  const auto step = new_step(bench.ops);
  run(bench.ops, x, states, mixed, *step);
  const std::vector<float> got = out;
  auto reference = MakeReferenceOps();
  std::vector<float> whole = projected;
  run(*reference, whole, states, mixed, *new_step(*reference));
  CheckClose(got, out);

  const double seconds = bench.BestSeconds([&] { run(bench.ops, x, states, mixed, *step); });
  const std::vector<float> hidden = floats(int64_t{n_rows} * kHidden);
  Matrix w = *bench.ops.NewMatrix(shape.projected_width(), kHidden, DType::kBF16);
  const std::vector<float> weights = floats(int64_t{w.rows} * w.cols);
  bench.ops.PackRows(w, 0, w.rows, weights.data(), DType::kF32);
  const double product = bench.BestSeconds(
      [&] { bench.ops.Gemm({.x = hidden.data(), .w = &w, .y = x.data(), .n_rows = n_rows}); });
  const double of_layer =
      product * (1.0 + static_cast<double>(shape.values_width() + kExpertRows) / w.rows);
  fmt::print("delta net {:>2} x {:>4}: {:8.3f} ms, {:4.1f}% of a layer with its products\n", n_seqs,
             n_tokens, seconds * 1e3, 100 * seconds / (seconds + of_layer));
}

// Copies of KV blocks between panels and host memory, relative to the bandwidth of reads.
void BenchKvCopy(const Bench& bench, DType dtype) {
  constexpr int32_t kHeads = 8, kDim = 128;
  std::vector<KvBlockCopy> copies;
  for (uint32_t i = 0; i < 512; ++i) copies.push_back({i, i});
  const size_t block_bytes = KvBlockBytes(dtype, kHeads, kDim), bytes = copies.size() * block_bytes;
  const Buffer k = *bench.ops.AllocateKv(bytes / 2), v = *bench.ops.AllocateKv(bytes / 2);
  const Buffer host = *bench.ops.AllocateHost(bytes), back = *bench.ops.AllocateHost(bytes);
  for (size_t i = 0; i < bytes; ++i)
    host.As<uint8_t>()[i] = static_cast<uint8_t>(i * 2654435761u >> 16);
  KvCopyArgs args{.kv = {k.data.get(), v.data.get(), dtype},
                  .n_kv_heads = kHeads,
                  .head_dim = kDim,
                  .copies = copies,
                  .host = host.data.get(),
                  .place_bytes = block_bytes};
  const double bandwidth = ReadBandwidth(bench.pool);
  const auto line = [&](const char* what, double seconds) {
    const double rate = static_cast<double>(bytes) / seconds;
    fmt::print("kv {} {:<8} {:8.3f} ms  {:6.1f} GB/s ({:3.0f}% of {:.1f})\n", what,
               DTypeName(dtype), seconds * 1e3, rate * 1e-9, 100 * rate / bandwidth,
               bandwidth * 1e-9);
  };
  line("import", bench.BestSeconds([&] { bench.ops.ImportKv(args); }));
  args.host = back.data.get();
  line("export", bench.BestSeconds([&] { bench.ops.ExportKv(args); }));
  SC_CHECK(std::memcmp(host.data.get(), back.data.get(), bytes) == 0);
}

void BenchSample(const Bench& bench, const char* name, float deviation, const SampleRow& row) {
  constexpr int32_t kVocab = 262144;
  std::vector<float> logits = RandomFloats(kVocab, deviation);
  std::vector<SampledToken> out(1), expected(1);
  std::vector<int32_t> ids(20);
  std::vector<float> logprobs(20);
  out[0] = expected[0] = {.top_ids = ids.data(), .top_logprobs = logprobs.data()};
  const std::vector<SampleRow> rows = {row};
  const SampleArgs args{.logits = logits.data(), .vocab = kVocab, .rows = rows, .out = out};
  bench.ops.Sample(args);
  SampleArgs reference_args = args;
  reference_args.out = expected;
  MakeReferenceOps()->Sample(reference_args);
  SC_CHECK(out[0].token == expected[0].token);
  const double seconds = bench.BestSeconds([&] { bench.ops.Sample(args); });
  fmt::print("sample {:<28} {:8.3f} ms a row of {}\n", name, seconds * 1e3, kVocab);
}

// Bandwidth of reads of 512 MiB each, for the requested time: the limit for a whole decode step.
void BenchBandwidth(const Bench& bench) {
  ReadOnce(bench.pool);  // allocates the buffer
  std::vector<double> passes;
  const double end = BenchSeconds() + bench.seconds_each;
  while (BenchSeconds() < end) passes.push_back(ReadOnce(bench.pool));
  std::ranges::sort(passes);
  fmt::print("read bandwidth: median {:.1f} GB/s, best {:.1f}\n", passes[passes.size() / 2] * 1e-9,
             passes.back() * 1e-9);
}

int Main(int argc, char** argv) {
  CLI::App app("Speed of the CPU kernels");
  int32_t n_threads = 0;
  double seconds = 1;
  std::string only;
  app.add_option("--threads", n_threads, "threads; 0: one a core")->capture_default_str();
  app.add_option("--seconds", seconds, "time for each measurement")->capture_default_str();
  std::string json_path;
  app.add_option(
      "--only", only,
      "gemm, quantized, experts, attention, fp8_kv, latents, recurrent, kv, sample or bandwidth");
  app.add_option("--json", json_path,
                 "file for a line of each product with one row, of latents and of FP8 caches");
  bool cpu_time = false;
  app.add_flag("--cpu-time", cpu_time, "measure CPU time: on a busy machine, with one thread");
  CLI11_PARSE(app, argc, argv);
  if (cpu_time) UseCpuTime();
  auto ops = MakeCpuOps({.n_threads = n_threads});
  ThreadPool pool(n_threads > 0 ? n_threads
                                : static_cast<int>(std::thread::hardware_concurrency()));
  std::ofstream json;
  if (!json_path.empty()) json.open(json_path);
  const Bench bench{*ops, pool, seconds, json_path.empty() ? nullptr : &json};
  fmt::print("{}\n", ops->Describe());
  if (only == "bandwidth") BenchBandwidth(bench);
  if (only.empty() || only == "gemm") {
    using enum Code;
    for (const Code type : {kBF16, kQ8_0}) BenchGemm(bench, 262144, 640, type);
    for (const Code type : {kBF16, kF32, kF16, kQ8_0, kQ4_0, kQ5_0, kQ4_K, kQ5_K, kQ6_K, kIQ4_XS}) {
      BenchGemm(bench, 640, 2048, type);
      BenchGemm(bench, 4096, 4096, type);
    }
  }
  if (only.empty() || only == "quantized") {
    constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16, kF32 = DType::kF32;
    for (const Encoding& type :
         {Grouped(Code::kInt4, kF16, 128, true), Grouped(Code::kInt4, kBF16, 128, false),
          Grouped(Code::kInt4, kBF16, 32, false), MxFp4Encoding(), NvFp4Encoding(),
          Grouped(Code::kInt8, kF16, 128, true), Grouped(Code::kInt8, kBF16, 0, false),
          Grouped(Code::kFp8, kF32, 128, false), Grouped(Code::kFp8, kF32, 0, false)}) {
      BenchGemm(bench, 4096, 4096, type);
      BenchGemm(bench, 16384, 4096, type, /*most_rows=*/16);  // more than the caches hold
    }
  }
  if (only.empty() || only == "experts") {
    using enum Code;
    BenchExperts(bench, kBF16, kBF16);
    BenchExperts(bench, kQ8_0, kQ8_0);
    BenchExperts(bench, kQ4_K, kQ4_K);
    BenchExperts(bench, kQ4_K, kQ6_K);
  }
  if (only.empty() || only == "attention") {
    constexpr AttentionShape kGemma{4, 1, 256}, kMultiHead{12, 12, 64};
    for (const AttentionShape& shape : {kGemma, kMultiHead}) {
      BenchAttention(bench, shape, 1, 8192, 1);
      BenchAttention(bench, shape, 32, 1024, 1);
      BenchAttention(bench, shape, 1, 512, 512);
      BenchAttention(bench, shape, 1, 2048, 512);
    }
  }
  if (only.empty() || only == "fp8_kv") {
    constexpr AttentionShape kLlama{32, 8, 128}, kMultiHead{12, 12, 64};
    BenchFp8Cache(bench, kLlama, 1, 8192, 1);
    BenchFp8Cache(bench, kLlama, 16, 2048, 1);
    BenchFp8Cache(bench, kMultiHead, 1, 8192, 1);
    BenchFp8Cache(bench, kLlama, 1, 512, 512);
  }
  if (only.empty() || only == "latents") {
    for (const int32_t n_tokens : {64, 512, 2048}) BenchLatents(bench, /*n_heads=*/16, n_tokens);
    BenchLatents(bench, /*n_heads=*/128, 512);
  }
  if (only.empty() || only == "recurrent") {
    BenchDeltaNet(bench, 1, 512);
    BenchDeltaNet(bench, 16, 1);
    BenchDeltaNet(bench, 1, 1);
  }
  if (only.empty() || only == "kv") {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kFp8}) {
      BenchKvCopy(bench, dtype);
    }
  }
  if (only.empty() || only == "sample") {
    BenchSample(bench, "greedy", 3, {});
    BenchSample(bench, "temperature 1", 3, {.params = {.temperature = 1}});
    BenchSample(bench, "temperature 1, nearly flat", 0.01f, {.params = {.temperature = 1}});
    BenchSample(bench, "top-k 64, top-p 0.95", 3,
                {.params = {.temperature = 1, .top_k = 64, .top_p = 0.95f}});
    BenchSample(bench, "greedy, 20 logprobs", 3, {.n_logprobs = 20});
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach::kernels

int main(int argc, char** argv) { return stagecoach::kernels::Main(argc, argv); }
