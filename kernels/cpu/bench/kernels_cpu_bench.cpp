// Speed of the CPU kernels relative to the machine's limits (a roofline): memory-bound kernels
// relative to the read bandwidth, compute-bound ones to the peak rate of multiply-adds. Every
// result is checked before it is timed. Shapes: Gemma-3-270M; of experts, Qwen3-30B-A3B; of FP8
// caches, Llama-3-8B and one with a KV head per query head.
//
//   kernels_cpu_bench [--threads N] [--seconds S] [--only
//   gemm|quantized|gguf|experts|attention|fp8_kv|latents|recurrent|kv|sample|bandwidth]
//                     [--json FILE] [--cpu-time]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "common/check.h"
#include "common/encoding/rows.h"
#include "kernels/cpu/bench/cpu_bench.h"
#include "kernels/cpu/bench/random_matrix.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::kernels {
namespace {

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

// One row and weights of as many bytes as the measurement of the bandwidth reads, so that no cache
// favours either.
void BenchLargeGemm(const Bench& bench, const Encoding& type) {
  const auto n = static_cast<int32_t>(kReadBytes / RowBytes(type, 4096));
  BenchGemm(bench, n, 4096, type, /*most_rows=*/1);
}

int Main(int argc, char** argv) {
  CLI::App app("Speed of the CPU kernels");
  int32_t n_threads = 0;
  double seconds = 1;
  std::string only;
  app.add_option("--threads", n_threads, "threads; 0: one a core")->capture_default_str();
  app.add_option("--seconds", seconds, "time for each measurement")->capture_default_str();
  std::string json_path;
  app.add_option("--only", only,
                 "gemm, quantized, gguf, experts, attention, fp8_kv, latents, recurrent, kv, "
                 "sample or bandwidth");
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
      BenchLargeGemm(bench, type);
    }
  }
  if (only.empty() || only == "gguf") {
    using enum Code;
    for (const Code type : {kQ4_0, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kIQ4_XS}) {
      BenchLargeGemm(bench, type);
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
