// Route for any number of experts; with groups of them, and softmax, for as many as a warp's
// registers hold.
#include "common/check.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/next_choice.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/experts/sigmoid_route.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 8;

__device__ __forceinline__ float OrMinusInfinity(float x) {
  return x == x ? x : __uint_as_float(0xff800000u);
}

// One warp per row. n_used times, it selects the largest remaining logit; the lowest expert wins a
// tie.
__global__ void __launch_bounds__(kWarps* kWarpThreads) RouteKernel(const RouteArgs p) {
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  if (row >= p.n_tokens) return;
  const float* const logits = p.logits + row * p.n_experts;
  int32_t* const experts = p.experts + row * p.n_used;
  float* const weights = p.weights + row * p.n_used;

  float max = 0;
  Choice last;
  for (int32_t i = 0; i < p.n_used; ++i) {
    last =
        NextChoice(p.n_experts, last, lane, [&](int32_t e) { return OrMinusInfinity(logits[e]); });
    if (i == 0) max = last.score;
    if (lane == 0) {
      experts[i] = last.expert;
      weights[i] = last.score;
    }
  }
  __syncwarp();
  float total = 0;
  if (p.over_used) {
    for (int32_t i = lane; i < p.n_used; i += kWarpThreads) total += expf(weights[i] - max);
  } else {
    for (int32_t e = lane; e < p.n_experts; e += kWarpThreads) {
      total += expf(OrMinusInfinity(logits[e]) - max);
    }
  }
  total = WarpSum(total);
  __syncwarp();
  for (int32_t i = lane; i < p.n_used; i += kWarpThreads) {
    const float scale = p.expert_scales != nullptr ? p.expert_scales[experts[i]] : 1.0f;
    weights[i] = p.softmax_groups.factor * scale * expf(weights[i] - max) / total;
  }
}

}  // namespace

cudaError_t Route(const Stream& stream, const RouteArgs& args) {
  SC_CHECK(args.n_used >= 1 && args.n_used <= args.n_experts);
  if (args.sigmoid) return SigmoidRoute(stream, args);
  if (HasRouteInRegisters(args)) return RouteInRegisters(stream, args);
  SC_CHECK(args.softmax_groups.n_groups == 1);  // see CheckRunsOnGpus
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_tokens, kWarps))),
                          .block = kWarps * kWarpThreads};
  return Launch<&RouteKernel>(stream, shape, args);
}

}  // namespace stagecoach::kernels::cuda
