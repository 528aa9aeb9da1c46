// Speed of the GPU operations, relative to the device's limits in the same run (a roofline):
// memory-bound operations relative to the copy bandwidth, compute-bound ones to the rate of a large
// GEMM. Shapes: Mistral-7B; Qwen3-30B-A3B and Mixtral-8x7B for experts; gpt-oss and
// Qwen3-Next-80B-A3B for attention sinks and delta nets.
//
//   kernels_cuda_bench [--device N]
//                      [--only gemm|packed|fp8|gated|attention|cliff|recurrent|kv|experts|
//                              packed-experts|rest]
//                      [--batch-invariant] [--taken N [--sized-for-all]]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/bench/bench.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device/cuda_api.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

void BenchGemm(Bench& bench, const char* name, int32_t n, int32_t k, bool adds) {
  const size_t bytes = static_cast<size_t>(n) * static_cast<size_t>(k) * 2;
  std::vector<Matrix> w;
  for (size_t i = 0; i < std::max<size_t>(2, kColdBytes / bytes); ++i) {
    w.push_back(bench.RandomMatrix(n, k));
  }
  const Buffer x = bench.Random(8192 * static_cast<size_t>(k), kType);
  const Buffer y = bench.Random(8192 * static_cast<size_t>(n), adds ? DType::kF32 : kType);
  for (const int32_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192}) {
    std::vector<std::function<void()>> calls;
    const size_t n_calls = rows >= 2048 ? 2 : w.size();
    for (size_t i = 0; i < n_calls; ++i) {
      calls.push_back([&, i] {
        bench.ops().Gemm({.x = {x.data.get(), kType},
                          .w = &w[i],
                          .bias = nullptr,
                          .y = {y.data.get(), adds ? DType::kF32 : kType},
                          .n_rows = rows,
                          .add_to_y = adds});
      });
    }
    const double moved = static_cast<double>(bytes) + rows * (k * kElement + n * (adds ? 8 : 2));
    bench.Line(fmt::format("gemm {} {} x {} rows {}", name, n, k, rows), bench.Seconds(calls),
               moved, 2.0 * rows * n * static_cast<double>(k));
  }
}

struct PackedCase {
  const char* name;
  Encoding encoding;
};
std::vector<PackedCase> PackedCases() {
  return {{"int4", Grouped(Code::kInt4, DType::kF16, 128)},
          {"int4 zeros", Grouped(Code::kInt4, DType::kBF16, 128, true)},
          {"q4_k", Code::kQ4_K},
          {"q6_k", Code::kQ6_K},
          {"iq4_xs", Code::kIQ4_XS},
          {"q8_0", Code::kQ8_0},
          {"fp8", Code::kFp8},
          {"fp8 blocks", Fp8Blocks()},
          {"int8", Grouped(Code::kInt8, DType::kBF16, 128)},
          {"mxfp4", MxFp4Encoding()},
          {"nvfp4", NvFp4Encoding()}};
}

// Quantized weights beside bfloat16 ones. The bandwidth counts stored bytes.
void BenchPacked(Bench& bench, int32_t n, int32_t k) {
  Ops& ops = bench.ops();
  const Buffer x = bench.Random(256 * static_cast<size_t>(k), kType);
  const Buffer y = bench.Random(256 * static_cast<size_t>(n), kType);
  const auto seconds = [&](const std::vector<Matrix>& w, int32_t rows) {
    std::vector<std::function<void()>> calls;
    for (const Matrix& matrix : w) {
      calls.push_back([&] {
        ops.Gemm({.x = {x.data.get(), kType},
                  .w = &matrix,
                  .bias = nullptr,
                  .y = {y.data.get(), kType},
                  .n_rows = rows,
                  .add_to_y = false});
      });
    }
    return bench.Seconds(calls);
  };
  const auto n_cold = [](double bytes) {
    return std::max<size_t>(2, static_cast<size_t>(static_cast<double>(kColdBytes) / bytes));
  };
  constexpr int32_t kRows[] = {1, 4, 8, 16, 32, 64, 128, 256};
  std::vector<double> plain;
  {
    const double bytes = 2.0 * n * k;
    std::vector<Matrix> w;
    for (size_t i = 0; i < n_cold(bytes); ++i) w.push_back(bench.RandomMatrix(n, k));
    for (const int32_t rows : kRows) {
      plain.push_back(seconds(w, rows));
      bench.Line(fmt::format("packed bf16 {} x {} rows {}", n, k, rows), plain.back(), bytes, 0);
    }
  }
  for (const PackedCase& c : PackedCases()) {
    const MatrixPart part{n, c.encoding};
    constexpr int32_t kPiece = 1024;
    const std::vector<StoredPart> stored = RandomParts({{kPiece, c.encoding}}, k);
    const double bytes = static_cast<double>(
        EncodedBytes(c.encoding, static_cast<uint64_t>(n), static_cast<uint64_t>(k)));
    std::vector<Matrix> w;
    for (size_t i = 0; i < n_cold(bytes); ++i) w.push_back(*ops.NewMatrix({&part, 1}, k));
    const double pack = bench.MedianSeconds([&] {
      for (int32_t row = 0; row < n; row += kPiece) {
        ops.PackStored(w[0], row, std::min(kPiece, n - row), stored[0].bytes.data());
      }
    });
    for (size_t i = 1; i < w.size(); ++i) {
      SC_CHECK(cudaMemcpy(w[i].buffer.data.get(), w[0].buffer.data.get(), w[0].buffer.bytes,
                          cudaMemcpyDeviceToDevice) == cudaSuccess);
    }
    bench.Line(fmt::format("packed {} {} x {} load", c.name, n, k), pack, bytes, 0);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      const double packed = seconds(w, kRows[i]);
      bench.Line(fmt::format("packed {} {} x {} rows {}, bf16 / it {:.2f}", c.name, n, k, kRows[i],
                             plain[i] / packed),
                 packed, bytes, 0);
    }
  }
}

// The fused call, and the two calls that it replaces.
void BenchGated(Bench& bench, int32_t width, int32_t k) {
  const size_t bytes = 2 * static_cast<size_t>(width) * static_cast<size_t>(k) * 2;
  const std::vector<Matrix> w = {bench.RandomMatrix(2 * width, k),
                                 bench.RandomMatrix(2 * width, k)};
  const Buffer x = bench.Random(8192 * static_cast<size_t>(k), kType);
  const Buffer y = bench.Random(8192 * 2 * static_cast<size_t>(width), kType);
  const Buffer out = bench.Random(8192 * static_cast<size_t>(width), kType);
  Ops& ops = bench.ops();
  for (const int32_t rows : {1, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192}) {
    const auto calls = [&](bool at_once) {
      std::vector<std::function<void()>> all;
      for (const Matrix& matrix : w) {
        all.push_back([&, at_once] {
          const GemmArgs gemm{.x = {x.data.get(), kType},
                              .w = &matrix,
                              .bias = nullptr,
                              .y = {y.data.get(), kType},
                              .n_rows = rows,
                              .add_to_y = false};
          const ActivationArgs activation{.x = {y.data.get(), kType},
                                          .out = {out.data.get(), kType},
                                          .n_rows = rows,
                                          .width = width,
                                          .kind = Activation::kSilu,
                                          .gated = true};
          if (at_once) {
            ops.GemmActivate(gemm, activation);
          } else {
            ops.Gemm(gemm);
            ops.Activate(activation);
          }
        });
      }
      return all;
    };
    const double moved = static_cast<double>(bytes) + rows * (k + width) * kElement;
    for (const bool at_once : {true, false}) {
      bench.Line(fmt::format("{} 2 x {} x {} rows {}", at_once ? "gated" : "gemm, gate * up", width,
                             k, rows),
                 bench.Seconds(calls(at_once)), moved, 4.0 * rows * width * static_cast<double>(k));
    }
  }
}

struct Heads {
  int32_t n_heads, n_kv_heads, head_dim;
  DType dtype = kType;
  int32_t window = 0;
  bool has_sinks = false;
  bool fp8_cache = false;

  DType kv_dtype() const { return fp8_cache ? DType::kFp8 : dtype; }
  std::string Name() const {
    std::string name = fmt::format("attention {}/{} x {}", n_heads, n_kv_heads, head_dim);
    if (dtype != kType) name += fmt::format(" {}", DTypeName(dtype));
    if (window > 0) name += fmt::format(" window {}", window);
    if (has_sinks) name += " sinks";
    if (fp8_cache) name += ", fp8 cache";
    return name;
  }
};

// n_seqs sequences with `context` positions each; the last n_tokens positions attend.
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

// An FP8 cache beside one of 16 bits.
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

// New tokens after a context. No size should take longer than a slightly larger one (a cliff).
void BenchCliff(Bench& bench, const Heads& heads, int32_t context,
                const std::vector<int32_t>& sizes) {
  for (const int32_t n : sizes) BenchAttention(bench, heads, 1, context + n, n);
}
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

// The recurrence of a layer of Qwen3-Next-80B-A3B, between its projections.
void BenchDeltaNet(Bench& bench, int32_t n_seqs, int32_t n_tokens) {
  const RecurrentShape shape{.n_key_heads = 16,
                             .n_value_heads = 32,
                             .key_dim = 128,
                             .value_dim = 128,
                             .conv_width = 4,
                             .by_key_head = true};
  const int32_t n_rows = n_seqs * n_tokens;
  const auto elements = static_cast<size_t>(n_seqs) * static_cast<size_t>(shape.state_elements());
  std::vector<Buffer> states;
  for (size_t i = 0; i < std::clamp<size_t>(kColdBytes / (elements * 4), 1, 16); ++i) {
    states.push_back(bench.Random(elements, DType::kF32));
  }
  const auto floats = [&](int64_t n) { return bench.Random(static_cast<size_t>(n), DType::kF32); };
  const Buffer projected = floats(int64_t{n_rows} * shape.projected_width());
  const Buffer mixed = floats(int64_t{n_rows} * shape.n_channels());
  const Buffer out = floats(int64_t{n_rows} * shape.values_width());
  const Buffer conv = floats(int64_t{shape.n_channels()} * shape.conv_width);
  const Buffer numbers = floats(shape.value_dim);
  const auto step = *bench.ops().NewStepInputs({.max_tokens = n_rows,
                                                .max_slots = n_seqs,
                                                .max_blocks = 1024,
                                                .groups = {},
                                                .has_states = true});
  std::vector<StepSeq> seqs;
  for (int32_t s = 0; s < n_seqs; ++s) seqs.push_back({s, 16, n_tokens});
  bench.ops().BuildStep({.seqs = seqs, .n_tokens = n_rows}, step.get());
  std::vector<std::function<void()>> calls;
  for (const Buffer& layer : states) {
    calls.push_back([&] {
      bench.ops().Recurrence({.shape = shape,
                              .projected = projected.As<float>(),
                              .conv = conv.As<float>(),
                              .a_log = numbers.As<float>(),
                              .dt_bias = numbers.As<float>(),
                              .norm = numbers.As<float>(),
                              .norm_eps = 1e-6f,
                              .step = step.get(),
                              .states = layer.As<float>(),
                              .saves = {},
                              .mixed = mixed.As<float>(),
                              .out = {out.data.get(), kType}});
    });
  }
  // The states are read and written, and so is what lies between the kernels.
  const double of_rows = n_rows * (4.0 * shape.projected_width() + 12.0 * shape.n_channels());
  bench.Line(fmt::format("delta net: {} x {}", n_seqs, n_tokens), bench.Seconds(calls),
             8.0 * static_cast<double>(elements) + of_rows,
             8.0 * n_rows * shape.values_width() * shape.key_dim);
}

// Copies of scattered KV blocks to and from host memory, beside the driver's copies of as many
// bytes.
void BenchKvCopies(Bench& bench) {
  constexpr int32_t kHeads = 8, kDim = 128;
  constexpr uint32_t kAll = 4096;
  const size_t block_bytes = KvBlockBytes(kType, kHeads, kDim);
  const Buffer k = bench.RandomKv(size_t{kAll} * kHeads, kDim, kType);
  const Buffer v = bench.RandomKv(size_t{kAll} * kHeads, kDim, kType);
  Ops& ops = bench.ops();
  for (const uint32_t n : {1, 16, 256, 2048}) {
    std::vector<KvBlockCopy> copies;
    for (uint32_t i = 0; i < n; ++i) copies.push_back({i * 7919 % kAll, i});
    const size_t bytes = n * block_bytes;
    const Buffer host = *ops.AllocateHost(bytes), device = *ops.Allocate(bytes);
    const KvCopyArgs args{.kv = {k.data.get(), v.data.get(), kType},
                          .n_kv_heads = kHeads,
                          .head_dim = kDim,
                          .copies = copies,
                          .host = host.data.get(),
                          .place_bytes = block_bytes};
    const auto line = [&](const char* what, const std::function<void()>& call) {
      bench.Line(fmt::format("{} {} blocks", what, n), bench.SecondsInRow(call),
                 static_cast<double>(bytes), 0);
    };
    line("kv export", [&] { ops.ExportKv(args); });
    line("download", [&] { ops.DownloadLater(device.data.get(), host.data.get(), bytes); });
    line("kv import", [&] { ops.ImportKv(args); });
    const cuda::Stream stream{.handle = static_cast<cudaStream_t>(ops.native_queue().stream)};
    line("upload", [&] {
      SC_CHECK(cudaMemcpyAsync(device.data.get(), host.data.get(), bytes, cudaMemcpyHostToDevice,
                               stream.handle) == cudaSuccess);
    });
  }
}

void BenchRest(Bench& bench, int32_t rows) {
  constexpr int32_t kHidden = 4096, kWidth = 14336, kVocab = 32768;
  Ops& ops = bench.ops();
  const size_t n = static_cast<size_t>(rows);
  const Buffer hidden = bench.Random(n * kHidden, DType::kF32);
  const Buffer normed = bench.Random(n * kHidden, kType),
               weight = bench.Random(kHidden, DType::kF32);
  bench.Line(fmt::format("norm rows {}", rows), bench.Seconds({[&] {
    ops.Norm({.x = hidden.As<float>(),
              .weight = weight.As<float>(),
              .bias = nullptr,
              .out = {normed.data.get(), kType},
              .n_rows = rows,
              .width = kHidden,
              .kind = NormKind::kRms,
              .eps = 1e-5f,
              .add_to_out = false});
  }}),
             n * kHidden * 6.0, 0);
  const Buffer gate = bench.Random(n * 2 * kWidth, kType), active = bench.Random(n * kWidth, kType);
  bench.Line(fmt::format("gate * up rows {}", rows), bench.Seconds({[&] {
    ops.Activate({.x = {gate.data.get(), kType},
                  .out = {active.data.get(), kType},
                  .n_rows = rows,
                  .width = kWidth,
                  .kind = Activation::kSilu,
                  .gated = true});
  }}),
             n * kWidth * 6.0, 0);
  if (rows > 256) return;
  const Buffer logits = bench.Random(n * kVocab, DType::kF32);
  const Buffer memory = *ops.AllocateHost(n * sizeof(SampledToken));
  struct Kind {
    const char* name;
    SampleRow row;
  };
  for (const Kind& kind :
       {Kind{"greedy", {}}, Kind{"temperature", {.params = {.temperature = 1}}},
        Kind{"top-k 50, top-p 0.9", {.params = {.temperature = 1, .top_k = 50, .top_p = 0.9f}}}}) {
    const std::vector<SampleRow> sample_rows(n, kind.row);
    bench.Line(fmt::format("sample {} rows {}", kind.name, rows), bench.SecondsInRow([&] {
      ops.Sample({.logits = logits.As<float>(),
                  .vocab = kVocab,
                  .rows = sample_rows,
                  .out = {memory.As<SampledToken>(), n},
                  .sampled = nullptr});
    }),
               n * kVocab * 4.0, 0);
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Speed of the GPU's operations");
  CudaOptions options;
  std::string only;
  app.add_option("--device", options.device, "GPU by CUDA's count")->capture_default_str();
  app.add_flag("--batch-invariant", options.batch_invariant, "rows do not depend on each other");
  app.add_option("--only", only,
                 "gemm, packed, fp8, gated, attention, fp8-cache, cliff, recurrent, kv, experts, "
                 "packed-experts, wide or rest");
  int32_t n_taken = 0;
  bool sized_for_all = false;
  app.add_option("--taken", n_taken, "multiprocessors that others hold, as receives do in a stage");
  app.add_flag("--sized-for-all", sized_for_all, "kernels do not know of those");
  CLI11_PARSE(app, argc, argv);
  auto ops = MakeCudaOps(options);
  if (!ops.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(ops.status().message()));
    return 1;
  }
  Bench bench(*std::move(ops));
  bench.MeasurePeaks();
  bench.Take(n_taken);
  if (!sized_for_all) bench.ops().LeaveMultiprocessors(n_taken);
  if (only.empty() || only == "gemm") {
    BenchGemm(bench, "qkv", 6144, 4096, false);
    BenchGemm(bench, "o", 4096, 4096, true);
    BenchGemm(bench, "up", 28672, 4096, false);
    BenchGemm(bench, "down", 4096, 14336, true);
    BenchGemm(bench, "logits", 32768, 4096, true);
  }
  if (only.empty() || only == "packed") {
    BenchPacked(bench, 28672, 4096);
    BenchPacked(bench, 4096, 4096);
    BenchPacked(bench, 6144, 4096);
    BenchPacked(bench, 4096, 14336);
  }
  if (only.empty() || only == "fp8") BenchFp8(bench);
  if (only.empty() || only == "gated") {
    BenchGated(bench, 14336, 4096);
  }
  if (only.empty() || only == "attention") {
    constexpr Heads kMistral{32, 8, 128}, kGemma2{32, 16, 128}, kOpt{32, 32, 128},
        kGemma3{4, 1, 256};
    for (const Heads& heads : {kMistral, kGemma2, kOpt, kGemma3}) {
      BenchAttention(bench, heads, 1, 384, 1);
      BenchAttention(bench, heads, 1, 8192, 1);
      BenchAttention(bench, heads, 64, 1024, 1);
      BenchAttention(bench, heads, 256, 400, 1);
      BenchAttention(bench, heads, 256, 1280, 1);
      BenchAttention(bench, heads, 2, 4096, 4096);
      BenchAttention(bench, heads, 1, 8192, 8192);
      BenchAttention(bench, heads, 64, 128, 128);
    }
  }
  if (only.empty() || only == "fp8-cache") BenchFp8Cache(bench);
  if (only.empty() || only == "cliff") BenchCliffs(bench);
  if (only.empty() || only == "recurrent") {
    BenchDeltaNet(bench, 1, 8192);
    BenchDeltaNet(bench, 1, 512);
    BenchDeltaNet(bench, 8, 1024);
    for (const int32_t n_seqs : {1, 16, 64, 256}) BenchDeltaNet(bench, n_seqs, 1);
    for (const bool has_sinks : {false, true}) {
      const Heads full{64, 8, 64, kType, 0, has_sinks}, window{64, 8, 64, kType, 128, has_sinks};
      for (const Heads& heads : {full, window}) {
        BenchAttention(bench, heads, 1, 8192, 1);
        BenchAttention(bench, heads, 64, 1024, 1);
        BenchAttention(bench, heads, 1, 8192, 8192);
      }
    }
  }
  if (only.empty() || only == "kv") BenchKvCopies(bench);
  if (only.empty() || only == "experts") BenchExperts(bench);
  if (only.empty() || only == "packed-experts") BenchPackedExperts(bench);
  if (only.empty() || only == "wide") {
    constexpr Heads kGemma4{32, 4, 512};
    BenchAttention(bench, kGemma4, 1, 8192, 1);
    BenchAttention(bench, kGemma4, 64, 1024, 1);
    BenchAttention(bench, kGemma4, 1, 8192, 8192);
    BenchAttention(bench, kGemma4, 1, 30063, 63);
    BenchLatents(bench);
  }
  if (only.empty() || only == "rest") {
    for (const int32_t rows : {1, 64, 256, 8192}) BenchRest(bench, rows);
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach::kernels

int main(int argc, char** argv) { return stagecoach::kernels::Main(argc, argv); }
