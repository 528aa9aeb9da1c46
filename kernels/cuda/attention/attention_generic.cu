// Attention for cases that the tensor-core kernels do not support: float32, other head sizes, and
// latents of other sizes.
#include "common/check.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/fp8_rows.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/last_start.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kMaxValueDim = 512;
constexpr int kMaxHeadDim = 2 * kMaxValueDim;  // of queries and keys
constexpr int kWarps = 4;                      // per CTA
constexpr int kPieces = kMaxValueDim / kWarpThreads;

struct GenericParams {
  const void* qkv;
  const void *k, *v;
  void* out;
  const int32_t *seq_starts, *seq_positions, *seq_slots, *block_tables;
  int32_t block_table_stride;
  const int32_t* n_seqs;
  int32_t n_tokens;
  int32_t n_heads, n_kv_heads, head_dim, value_dim;
  KeyWindow window;
  int32_t n_in_row;  // heads of a row of qkv
  float scale, softcap;
  const float* sinks;
};

// A row of the cache.
template <typename T>
struct PlainRow {
  const T* at;
  __device__ __forceinline__ float operator[](int i) const { return ToFloat(at[i]); }
};
struct Fp8Row {
  const unsigned char* codes;
  float scale;
  int head_dim;
  bool is_v;
  __device__ __forceinline__ float operator[](int i) const {
    return FloatOfFp8(codes[KvFp8Place(i, head_dim, is_v)]) * scale;
  }
};

// One warp per row and query head. A lane computes the score of one key, and accumulates every 32nd
// element of the output.
template <typename T, bool kIsFp8>
__global__ void __launch_bounds__(kWarps* kWarpThreads) GenericKernel(const GenericParams p) {
  __shared__ float queries[kWarps][kMaxHeadDim];
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int64_t item = int64_t{blockIdx.x} * kWarps + warp;
  if (item >= int64_t{p.n_tokens} * p.n_heads) return;
  const int32_t row = static_cast<int32_t>(item / p.n_heads);
  const int32_t head = static_cast<int32_t>(item % p.n_heads);
  const int32_t kv_head = head / (p.n_heads / p.n_kv_heads);
  // Rows after the last sequence are padding.
  const int32_t n_seqs = *p.n_seqs;
  if (row >= p.seq_starts[n_seqs]) return;
  const int32_t seq = LastStart(p.seq_starts, n_seqs, row);
  const int32_t position = p.seq_positions[seq] + row - p.seq_starts[seq];
  const int32_t first = p.window.First(position);
  const int32_t* const table = p.block_tables + int64_t{p.seq_slots[seq]} * p.block_table_stride;
  const auto cache_row = [&](bool is_v, int32_t key) {
    const void* const cache = is_v ? p.v : p.k;
    const int64_t head = int64_t{table[key / kBlockTokens]} * p.n_kv_heads + kv_head;
    const int32_t row = key % kBlockTokens;
    if constexpr (kIsFp8) {
      const auto* const at = static_cast<const unsigned char*>(cache) +
                             head * static_cast<int64_t>(KvFp8HeadBytes(p.head_dim));
      const auto* const scales = reinterpret_cast<const uint16_t*>(at + KvFp8CodeBytes(p.head_dim));
      return Fp8Row{at + row * p.head_dim, ToFloat(BF16{scales[row]}), p.head_dim, is_v};
    } else {
      return PlainRow<T>{static_cast<const T*>(cache) + (head * kBlockTokens + row) * p.head_dim};
    }
  };

  float* const q = queries[warp];
  const T* const from =
      static_cast<const T*>(p.qkv) + (int64_t{row} * p.n_in_row + head) * p.head_dim;
  for (int i = lane; i < p.head_dim; i += kWarpThreads) q[i] = ToFloat(from[i]) * p.scale;
  __syncwarp();

  float max = MinusInfinity(), total = 0;
  float sums[kPieces] = {};
  for (int32_t start = first; start <= position; start += kWarpThreads) {
    const int32_t key = start + lane;
    float score = MinusInfinity();
    if (key <= position) {
      const auto k = cache_row(/*is_v=*/false, key);
      score = 0;
      for (int i = 0; i < p.head_dim; ++i) score += q[i] * k[i];
      if (p.softcap > 0) score = p.softcap * tanhf(score / p.softcap);
    }
    const float most = fmaxf(max, WarpMax(score));
    const float kept = expf(max - most), weight = expf(score - most);
    max = most;
    total = total * kept + WarpSum(weight);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) sums[i] *= kept;
    const int n_keys = min(position - start + 1, kWarpThreads);
    for (int j = 0; j < n_keys; ++j) {
      const float w = __shfl_sync(kAllLanes, weight, j);
      const auto v = cache_row(/*is_v=*/true, start + j);
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int element = i * kWarpThreads + lane;
        if (element < p.value_dim) sums[i] += w * v[element];
      }
    }
  }
  if (p.sinks != nullptr) total += expf(p.sinks[head] - max);
  T* const out = static_cast<T*>(p.out) + (int64_t{row} * p.n_heads + head) * p.value_dim;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int element = i * kWarpThreads + lane;
    if (element < p.value_dim) out[element] = FromFloat<T>(sums[i] / total);
  }
}

}  // namespace

cudaError_t GenericAttention(const Stream& stream, const AttentionArgs& args,
                             const AttentionPlan& plan) {
  const bool has_latents = args.kv_of_row == KvOfRow::kLatents;
  const int32_t value_dim = has_latents ? args.value_dim : args.head_dim;
  SC_CHECK(args.head_dim <= kMaxHeadDim && value_dim <= kMaxValueDim);
  const bool is_fp8 = args.kv.dtype == DType::kFp8;
  SC_CHECK((is_fp8 || args.kv.dtype == args.qkv.dtype) && args.out.dtype == args.qkv.dtype);
  SC_CHECK(!is_fp8 || (!has_latents && args.head_dim % 4 == 0));
  const StepInputs& step = *args.step;
  const GenericParams params{
      .qkv = args.qkv.data,
      .k = args.kv.k,
      .v = has_latents ? args.kv.k : args.kv.v,
      .out = args.out.data,
      .seq_starts = step.seq_starts,
      .seq_positions = step.seq_positions,
      .seq_slots = step.seq_slots,
      .block_tables = step.groups[static_cast<size_t>(args.group)].block_tables,
      .block_table_stride = step.block_table_stride,
      .n_seqs = plan.n_seqs,
      .n_tokens = step.n_tokens,
      .n_heads = args.n_heads,
      .n_kv_heads = args.n_kv_heads,
      .head_dim = args.head_dim,
      .value_dim = value_dim,
      .window = args.window,
      .n_in_row = args.n_heads + NKvVectors(args.kv_of_row) * args.n_kv_heads,
      .scale = args.scale,
      .softcap = args.softcap,
      .sinks = args.sinks};
  const int64_t n_items = int64_t{step.n_tokens} * args.n_heads;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(n_items, kWarps))),
                          .block = kWarps * kWarpThreads};
  return WithType(args.qkv.dtype, [&](auto type) {
    using T = decltype(type);
    return is_fp8 ? Launch<&GenericKernel<T, true>>(stream, shape, params)
                  : Launch<&GenericKernel<T, false>>(stream, shape, params);
  });
}

}  // namespace stagecoach::kernels::cuda
