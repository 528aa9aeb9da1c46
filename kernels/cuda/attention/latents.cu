#include "kernels/cuda/attention/latents.h"

#include "common/check.h"
#include "kernels/cuda/attention/query_scale.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kRows = 8;  // that share each read of a head's weights
constexpr int kMaxInputs = 1024;

struct HeadGemmParams {
  const void *x, *w;
  void* y;
  int32_t n_rows, n_heads, n_outputs, n_inputs, x_dim, y_dim;
};

// A CTA multiplies kRows rows of one head; each warp computes every kWarps'th output. A lane adds
// every 32nd product, so the order does not depend on the rows.
template <typename T>
__global__ void __launch_bounds__(kThreads) HeadGemmKernel(const HeadGemmParams p) {
  __shared__ float x[kRows][kMaxInputs];
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int32_t head = blockIdx.y, first = static_cast<int32_t>(blockIdx.x) * kRows;
  const int n = min(kRows, p.n_rows - first);
  const auto head_of = [&](int r) { return int64_t{first + r} * p.n_heads + head; };
  for (int r = 0; r < n; ++r) {
    const T* const from = static_cast<const T*>(p.x) + head_of(r) * p.x_dim;
    for (int i = threadIdx.x; i < p.n_inputs; i += kThreads) x[r][i] = ToFloat(from[i]);
  }
  __syncthreads();
  for (int32_t output = warp; output < p.n_outputs; output += kWarps) {
    const T* const w =
        static_cast<const T*>(p.w) + (int64_t{head} * p.n_outputs + output) * p.n_inputs;
    float sums[kRows] = {};
    for (int i = lane; i < p.n_inputs; i += kWarpThreads) {
      const float weight = ToFloat(w[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r < n) sums[r] += weight * x[r][i];
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = WarpSum(sums[r]);
      if (lane == 0 && r < n) {
        static_cast<T*>(p.y)[head_of(r) * p.y_dim + output] = FromFloat<T>(sum);
      }
    }
  }
}

struct LatentParams {
  float* latents;
  const void* q;
  void *queries, *cache;
  const int32_t *positions, *kv_slots;
  const float *cos, *sin, *norm;
  float norm_eps;
  int32_t n_heads, kv_rank, nope_dim, rope_dim;
  bool interleaved;
  QueryScaling query_scaling;
};

// The values of pair `i` of the rotated part at `from`, rotated and times `factor`, to `to`.
template <typename From, typename To>
__device__ __forceinline__ void RotatePair(const LatentParams& p, int64_t position, int i,
                                           const From* from, float factor, To* to) {
  const int half = p.rope_dim / 2;
  const int low = p.interleaved ? 2 * i : i, high = p.interleaved ? low + 1 : i + half;
  const float cos = p.cos[position * half + i], sin = p.sin[position * half + i];
  const float a = ToFloat(from[low]), b = ToFloat(from[high]);
  to[low] = FromFloat<To>((a * cos - b * sin) * factor);
  to[high] = FromFloat<To>((b * cos + a * sin) * factor);
}

// One CTA per token.
template <typename T>
__global__ void __launch_bounds__(kThreads) LatentAppendKernel(const LatentParams p) {
  __shared__ float sums[kWarpThreads];
  LetNextStart();
  WaitForPrevious();
  const int64_t token = blockIdx.x, position = p.positions[token];
  const int half = p.rope_dim / 2, dim = p.kv_rank + p.rope_dim;
  const int q_dim = p.nope_dim + p.rope_dim;
  const float query_scale = QueryScale(p.query_scaling, static_cast<int32_t>(position));
  T* const queries = static_cast<T*>(p.queries) + token * p.n_heads * dim;
  for (int i = threadIdx.x; i < p.n_heads * half; i += kThreads) {
    const int head = i / half;
    RotatePair(p, position, i % half,
               static_cast<const T*>(p.q) + (token * p.n_heads + head) * q_dim + p.nope_dim,
               query_scale, queries + head * dim + p.kv_rank);
  }
  if (query_scale != 1) {
    for (int i = threadIdx.x; i < p.n_heads * p.kv_rank; i += kThreads) {
      T& number = queries[i / p.kv_rank * dim + i % p.kv_rank];
      number = FromFloat<T>(ToFloat(number) * query_scale);
    }
  }
  const float* const latent = p.latents + token * dim;
  float square = 0;
  for (int i = threadIdx.x; i < p.kv_rank; i += kThreads) square += latent[i] * latent[i];
  square = BlockSum(square, sums);
  const int32_t slot = p.kv_slots[token];
  if (slot < 0) return;  // padding
  const float scale = 1.0f / sqrtf(square / static_cast<float>(p.kv_rank) + p.norm_eps);
  T* const to = static_cast<T*>(p.cache) + int64_t{slot} * dim;
  for (int i = threadIdx.x; i < p.kv_rank; i += kThreads) {
    to[i] = FromFloat<T>(latent[i] * scale * p.norm[i]);
  }
  for (int i = threadIdx.x; i < half; i += kThreads) {
    RotatePair(p, position, i, latent + p.kv_rank, /*factor=*/1, to + p.kv_rank);
  }
}

}  // namespace

cudaError_t HeadGemm(const Stream& stream, const HeadGemmArgs& args) {
  const Matrix& w = *args.w;
  SC_CHECK(w.parts.empty() && w.cols <= kMaxInputs);
  SC_CHECK(args.x.dtype == w.dtype && args.y.dtype == w.dtype);
  const HeadGemmParams params{.x = args.x.data,
                              .w = w.buffer.data.get(),
                              .y = args.y.data,
                              .n_rows = args.n_rows,
                              .n_heads = args.n_heads,
                              .n_outputs = w.rows / args.n_heads,
                              .n_inputs = w.cols,
                              .x_dim = args.x_dim,
                              .y_dim = args.y_dim};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_rows, kRows)),
                                       static_cast<unsigned>(args.n_heads)),
                          .block = kThreads};
  return WithType(w.dtype, [&](auto type) {
    return Launch<&HeadGemmKernel<decltype(type)>>(stream, shape, params);
  });
}

cudaError_t LatentAppend(const Stream& stream, const LatentAppendArgs& args) {
  SC_CHECK(args.q.dtype == args.kv.dtype && args.queries.dtype == args.kv.dtype);
  const LatentParams params{.latents = args.latents,
                            .q = args.q.data,
                            .queries = args.queries.data,
                            .cache = args.kv.k,
                            .positions = args.positions,
                            .kv_slots = args.kv_slots,
                            .cos = args.rope->cos,
                            .sin = args.rope->sin,
                            .norm = args.norm,
                            .norm_eps = args.norm_eps,
                            .n_heads = args.n_heads,
                            .kv_rank = args.kv_rank,
                            .nope_dim = args.nope_dim,
                            .rope_dim = args.rope_dim,
                            .interleaved = args.interleaved,
                            .query_scaling = args.query_scaling};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.n_tokens)), .block = kThreads};
  return WithType(args.kv.dtype, [&](auto type) {
    return Launch<&LatentAppendKernel<decltype(type)>>(stream, shape, params);
  });
}

}  // namespace stagecoach::kernels::cuda
