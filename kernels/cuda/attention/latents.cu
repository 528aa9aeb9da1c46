#include "kernels/cuda/attention/latents.h"

#include "common/check.h"
#include "kernels/cuda/attention/query_scale.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;

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
