#include "cli/plan/step_time.h"

#include <algorithm>

namespace stagecoach::plan {
namespace {

// Shares of the data sheet's bandwidth. Kernels for one row reach the first one (step of a 7B shape
// on an H200). So do kernels of experts and attention for any number of rows (cuda_packed.jsonl,
// "experts Qwen3-30B-A3B bf16"; cuda_steps.jsonl, "decode_attention/256x400"). GEMMs of 8 to 128
// rows reach the second one (cuda_kernels.jsonl, the four of "gemm ... rows 64").
constexpr double kBandwidthShare = 0.83;
constexpr double kGemmBandwidthShare = 0.72;
// Shares of the data sheet's 16-bit rate. A step reaches the first one with 256 rows and more
// (cuda_kernels.jsonl, "gemm ... rows 256"; cuda_serve.jsonl, "mistral_7b_v0.3/prefill/64x4096").
// FP8 products are 1.4 times as fast (cuda_fp8.jsonl, "fp8 layer rows 2048").
constexpr double kFlopsShare = 0.6;
constexpr double kFp8FlopsShare = 1.4 * kFlopsShare;
// Products that unpack weights on the way: 0.46 for those of a layer of Mistral 7B in int4 with 256
// rows, 0.35 (q4_k) to 0.47 (mxfp4) for experts with 16,384 rows (cuda_packed.jsonl).
constexpr double kPackedFlopsShare = 0.44;
// Quantized weights that become numbers per second. GPUs with less bandwidth than an H100 wait for
// memory rather than for this: H100 and H200 differ in bandwidth, not in this.
// - In kernels for few rows (fitted together with kExpertLayerSeconds):
constexpr double kConvertedPerSecond = 9e12;
// - In GEMMs: products of a layer of Mistral 7B in int4 with 64 rows (cuda_packed.jsonl, H100).
constexpr double kUnpackedPerSecond = 2.1e12;
// - In GEMMs of experts, with 64 rows: 3.0e12 (q4_k) to 4.5e12 (int4) (cuda_packed.jsonl).
constexpr double kUnpackedOfExpertsPerSecond = 4e12;
// - Before a GEMM of many rows, which expands them to 16 bits: what int4 adds to a step of 8,192
//   rows on an H100 (cuda_serve.jsonl, "mistral_7b_v0.3/quantize_int4/prefill/64x4096").
constexpr double kExpandedPerSecond = 6e11;
// Rows up to which a product with quantized weights has kernels for few rows, and up to which it
// unpacks weights on the way (kernels/cuda/packed).
constexpr double kFewRows = 8;
constexpr double kMostPackedRows = 64, kMostPackedRowsOnHopper = 512;
// Attention turns this many bytes of an FP8 cache into numbers per second (cuda_fp8_cache.jsonl,
// "256 x 1 of 1280").
constexpr double kFp8CacheBytesPerSecond = 3.36e12;
// Kernels of a layer with experts that do not hide behind its reads: choosing experts, and starts
// of kernels. This and kConvertedPerSecond were fitted to what H100s and H200s take for one request
// (measured_test.cpp), with errors of up to 13 %. Layers without experts show no such time.
constexpr double kExpertLayerSeconds = 25.5e-6;

struct Rates {
  explicit Rates(const Gpu& gpu)
      : bytes(gpu.bytes_per_s * kBandwidthShare),
        gemm_bytes(gpu.bytes_per_s * kGemmBandwidthShare),
        flops(gpu.bf16_flops_per_s * kFlopsShare),
        fp8_flops(gpu.bf16_flops_per_s * kFp8FlopsShare),
        packed_flops(gpu.bf16_flops_per_s * kPackedFlopsShare),
        most_packed_rows(gpu.is_hopper ? kMostPackedRowsOnHopper : kMostPackedRows) {}

  double bytes, gemm_bytes;               // per second
  double flops, fp8_flops, packed_flops;  // per second
  double most_packed_rows;
};

// Matrices that all rows are multiplied with; only sampled_rows with the output head.
double EveryRowSeconds(const StageWork& work, double rows, double sampled_rows,
                       const Rates& rates) {
  const auto n_quantized = static_cast<double>(work.every_row.n_quantized);
  const double read =
      static_cast<double>(work.every_row.bytes) / (rows > 1 ? rates.gemm_bytes : rates.bytes);
  if (rows <= kFewRows) return read + n_quantized / kConvertedPerSecond;

  const double flops = 2 * (work.weights * rows + work.head_weights * sampled_rows);
  const double quantized_flops = std::min(flops, 2 * n_quantized * rows);
  const double plain = (flops - quantized_flops) / rates.flops;
  if (work.multiplies_fp8) return std::max(read, plain + quantized_flops / rates.fp8_flops);
  if (rows > rates.most_packed_rows) {
    return n_quantized / kExpandedPerSecond + std::max(read, flops / rates.flops);
  }
  return std::max(
      {read, n_quantized / kUnpackedPerSecond, plain + quantized_flops / rates.packed_flops});
}

// Experts have few rows each, so their products wait for weights and then multiply tiles that are
// not full: the two times add up (cuda_packed.jsonl, "experts ..." with 64 to 16,384 rows).
double ExpertSeconds(const StageWork& work, double rows, const Rates& rates) {
  const double share = ShareInUse(work, rows);
  const double read = share * static_cast<double>(work.experts.bytes) / rates.bytes;
  const double n_quantized = share * static_cast<double>(work.experts.n_quantized);
  const double starts = work.n_expert_layers * kExpertLayerSeconds;
  if (rows <= 1) return read + n_quantized / kConvertedPerSecond + starts;
  const double flops = 2 * work.expert_weights * rows;
  if (n_quantized == 0) return read + flops / rates.flops + starts;
  return std::max(read, n_quantized / kUnpackedOfExpertsPerSecond) + flops / rates.packed_flops +
         starts;
}

// Number of keys that a row attends to, of those before it.
double Keys(KeyWindow window, double tokens) {
  return window == 0 ? tokens : std::min<double>(window.size, tokens);
}

}  // namespace

double DecodeSeconds(const StageWork& work, double rows, double context, const Gpu& gpu) {
  const Rates rates(gpu);
  double cache = 0;  // bytes of one sequence
  for (const AttentionWork& group : work.attention) {
    cache += group.bytes_a_token * Keys(group.window, context);
  }
  const double cache_rate =
      work.kv_is_fp8 ? std::min(rates.bytes, kFp8CacheBytesPerSecond) : rates.bytes;
  const double states = 2 * work.state_bytes;  // read and written
  return EveryRowSeconds(work, rows, rows, rates) + ExpertSeconds(work, rows, rates) +
         rows * (cache / cache_rate + states / rates.bytes);
}

double PromptSeconds(const StageWork& work, double rows, double prompt_tokens, const Gpu& gpu) {
  const Rates rates(gpu);
  double flops = 0;  // of a row's attention
  for (const AttentionWork& group : work.attention) {
    flops += group.flops_a_key * Keys(group.window, prompt_tokens / 2);
  }
  return EveryRowSeconds(work, rows, /*sampled_rows=*/0, rates) + ExpertSeconds(work, rows, rates) +
         rows * flops / rates.flops;
}

}  // namespace stagecoach::plan
