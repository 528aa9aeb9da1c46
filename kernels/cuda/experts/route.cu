#include "kernels/cuda/experts/route.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/experts/dot.h"
#include "kernels/cuda/experts/route_row.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 4;  // per CTA

// One warp per row.
template <int kOfLane>
__global__ void __launch_bounds__(kWarps* kWarpThreads) RouteKernel(const RouteArgs p) {
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  if (row >= p.n_tokens) return;
  float logits[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int32_t e = lane + k * kWarpThreads;
    logits[k] = e < p.n_experts ? p.logits[row * p.n_experts + e] : 0;
  }
  RouteRow(p, row, logits, lane);
}

constexpr int kNormWarps = 8, kNormThreads = kNormWarps * kWarpThreads;
constexpr int kMostWidth = 4096;
constexpr int kWide = 4;  // elements that a thread norms at a time
constexpr int kItems = kMostWidth / (kNormThreads * kWide);
constexpr int kPieces = kMostWidth / (kWarpThreads * kPiece);  // of a matrix row, per lane

struct NormRouteParams {
  const float *x, *norm_weight;
  float eps, weight_offset;
  void* normed;  // [width]
  int32_t width;
  const void* w;  // [n_experts, width]
  const float* bias;
  float* logits;
  RouteArgs route;
  int32_t* n_done;  // CTAs that have written their logits
};

// Every CTA normalizes the row for itself, and each of its warps computes a logit. The last CTA
// that is done chooses the experts.
template <typename T, int kOfLane>
__global__ void __launch_bounds__(kNormThreads) NormRouteKernel(const NormRouteParams p) {
  __shared__ float sums[kWarpThreads];
  __shared__ uint4 normed[kMostWidth / kPiece];  // of T
  __shared__ bool is_last;
  LetNextStart();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int lane = thread % kWarpThreads, warp = thread / kWarpThreads;
  const int32_t expert = static_cast<int32_t>(blockIdx.x) * kNormWarps + warp;
  const bool has_expert = expert < p.route.n_experts;
  const int32_t n_pieces = p.width / kPiece;
  // No kernel writes the weights.
  uint4 of_w[kPieces];
  float norm_weight[kItems][kWide], x[kItems][kWide];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int32_t piece = lane + i * kWarpThreads;
    of_w[i] = uint4{};
    if (has_expert && piece < n_pieces) {
      of_w[i] = LoadOnce(static_cast<const uint4*>(p.w) + int64_t{expert} * n_pieces + piece);
    }
  }
  const auto element = [&](int item) { return (item * kNormThreads + thread) * kWide; };
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) < p.width)
      LoadFloats<kWide>(p.norm_weight + element(item), norm_weight[item]);
  }
  WaitForPrevious();
  float square = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= p.width) continue;
    LoadFloats<kWide>(p.x + element(item), x[item]);
#pragma unroll
    for (int e = 0; e < kWide; ++e) square += x[item][e] * x[item][e];
  }
  const float variance = BlockSum(square, sums) / static_cast<float>(p.width);
  const float scale = 1.0f / sqrtf(variance + p.eps);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= p.width) continue;
    float y[kWide];
#pragma unroll
    for (int e = 0; e < kWide; ++e) {
      y[e] = x[item][e] * scale * (norm_weight[item][e] + p.weight_offset);
    }
    StoreFloats<kWide>(y, reinterpret_cast<T*>(normed) + element(item));
    if (blockIdx.x == 0) StoreFloats<kWide>(y, static_cast<T*>(p.normed) + element(item));
  }
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int32_t piece = lane + i * kWarpThreads;
    if (piece < n_pieces) {
      sum = AddProducts<T>(sum, of_w[i], normed[piece]);
    }
  }
  sum = WarpSum(sum);
  if (has_expert && lane == 0) {
    p.logits[expert] = p.bias != nullptr ? sum + p.bias[expert] : sum;
    __threadfence();
  }
  __syncthreads();
  if (thread == 0) is_last = atomicAdd(p.n_done, 1) == static_cast<int32_t>(gridDim.x) - 1;
  __syncthreads();
  if (!is_last || warp != 0) return;
  __threadfence();
  float logits[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int32_t e = lane + k * kWarpThreads;
    logits[k] = e < p.route.n_experts ? LoadFreshOne(p.logits + e) : 0;
  }
  RouteRow(p.route, 0, logits, lane);
  if (lane == 0) *p.n_done = 0;
}

}  // namespace

bool HasRouteInRegisters(const RouteArgs& args) { return HasRouteRow(args); }

cudaError_t RouteInRegisters(const Stream& stream, const RouteArgs& args) {
  SC_CHECK(HasRouteRow(args));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_tokens, kWarps))),
                          .block = kWarps * kWarpThreads};
  return WithLogitsOfLane(args.n_experts, [&]<int kOfLane>() {
    return Launch<&RouteKernel<kOfLane>>(stream, shape, args);
  });
}

bool HasNormRoute(const NormArgs& norm, const GemmArgs& gemm, const RouteArgs& route) {
  return norm.kind != NormKind::kLayerNorm && norm.bias == nullptr && !norm.add_to_out &&
         norm.n_rows == 1 && norm.x.dtype == DType::kF32 && norm.out.data == gemm.x.data &&
         norm.width == gemm.w->cols && norm.width <= kMostWidth && norm.width % kPiece == 0 &&
         gemm.w->parts.empty() && gemm.w->dtype == norm.out.dtype && gemm.w->dtype != DType::kF32 &&
         gemm.w->rows == route.n_experts && !gemm.add_to_y && gemm.y.dtype == DType::kF32 &&
         gemm.y.data == route.logits && HasRouteRow(route);
}

cudaError_t NormRoute(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm,
                      const RouteArgs& route, int32_t* n_done) {
  SC_CHECK(HasNormRoute(norm, gemm, route));
  const NormRouteParams params{.x = norm.x.f32(),
                               .norm_weight = norm.weight,
                               .eps = norm.eps,
                               .weight_offset = norm.kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f,
                               .normed = norm.out.data,
                               .width = norm.width,
                               .w = gemm.w->buffer.data.get(),
                               .bias = gemm.bias,
                               .logits = gemm.y.f32(),
                               .route = route,
                               .n_done = n_done};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(route.n_experts, kNormWarps))),
                          .block = kNormThreads};
  return WithLogitsOfLane(route.n_experts, [&]<int kOfLane>() {
    return gemm.w->dtype == DType::kBF16
               ? Launch<&NormRouteKernel<BF16, kOfLane>>(stream, shape, params)
               : Launch<&NormRouteKernel<F16, kOfLane>>(stream, shape, params);
  });
}

}  // namespace stagecoach::kernels::cuda
