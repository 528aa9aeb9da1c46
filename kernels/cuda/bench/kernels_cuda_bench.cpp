// Speed of the GPU operations, relative to the device's limits in the same run (a roofline):
// memory-bound operations relative to the copy bandwidth, compute-bound ones to the rate of a large
// GEMM. Shapes: Mistral-7B; Qwen3-30B-A3B and Mixtral-8x7B for experts; gpt-oss and
// Qwen3-Next-80B-A3B for attention sinks and delta nets.
//
//   kernels_cuda_bench [--device N]
//                      [--only gemm|packed|fp8|gated|attention|fp8-cache|cliff|recurrent|kv|
//                              experts|packed-experts|wide|rest]
//                      [--batch-invariant] [--taken N [--sized-for-all]]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/bench/attention_bench.h"
#include "kernels/cuda/bench/bench.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels {
namespace {

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
