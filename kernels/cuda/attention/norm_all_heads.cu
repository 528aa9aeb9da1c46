#include "kernels/cuda/attention/norm_all_heads.h"

#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements per load and thread, if the head size allows it

struct NormParams {
  void* qkv;
  const float *q_norm, *k_norm;
  int32_t n_heads, n_kv_heads, head_dim;
  NormKind kind;
  float eps;
};

// Grid: x is the token; y is 0 for q and 1 for k.
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) NormAllHeadsKernel(const NormParams p) {
  __shared__ float sums[2][kWarpThreads];
  LetNextStart();
  WaitForPrevious();
  const bool is_q = blockIdx.y == 0;
  const int64_t n_before =
      int64_t{blockIdx.x} * (p.n_heads + 2 * p.n_kv_heads) + (is_q ? 0 : p.n_heads);
  T* const x = static_cast<T*>(p.qkv) + n_before * p.head_dim;
  const int32_t width = (is_q ? p.n_heads : p.n_kv_heads) * p.head_dim;
  const float* const weight = is_q ? p.q_norm : p.k_norm;
  const auto for_each = [&](const auto& each) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * kN; i < width; i += kThreads * kN) {
      float values[kN];
      LoadFloats<kN>(x + i, values);
      each(i, values);
    }
  };
  float mean = 0;
  if (p.kind == NormKind::kLayerNorm) {
    for_each([&](int32_t, const float(&values)[kN]) {
#pragma unroll
      for (int e = 0; e < kN; ++e) mean += values[e];
    });
    mean = BlockSum(mean, sums[0]) / static_cast<float>(width);
  }
  float square = 0;
  for_each([&](int32_t, const float(&values)[kN]) {
#pragma unroll
    for (int e = 0; e < kN; ++e) square += (values[e] - mean) * (values[e] - mean);
  });
  const float variance = BlockSum(square, sums[1]) / static_cast<float>(width);
  const float scale = 1.0f / sqrtf(variance + p.eps);
  const float offset = p.kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f;
  for_each([&](int32_t i, float(&values)[kN]) {
#pragma unroll
    for (int e = 0; e < kN; ++e) {
      values[e] = (values[e] - mean) * scale * (weight[i + e] + offset);
    }
    StoreFloats<kN>(values, x + i);
  });
}

}  // namespace

cudaError_t NormAllHeads(const Stream& stream, const RopeAppendArgs& args) {
  const NormParams params{.qkv = args.qkv.data,
                          .q_norm = args.q_norm,
                          .k_norm = args.k_norm,
                          .n_heads = args.n_heads,
                          .n_kv_heads = args.n_kv_heads,
                          .head_dim = args.head_dim,
                          .kind = args.norm_kind,
                          .eps = args.norm_eps};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.n_tokens), 2), .block = kThreads};
  return WithType(args.qkv.dtype, [&](auto type) {
    using T = decltype(type);
    return args.head_dim % kWide == 0 ? Launch<&NormAllHeadsKernel<T, kWide>>(stream, shape, params)
                                      : Launch<&NormAllHeadsKernel<T, 1>>(stream, shape, params);
  });
}

}  // namespace stagecoach::kernels::cuda
