#include "kernels/cuda/experts/sigmoid_route.h"

#include "common/check.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"
#include "kernels/cuda/experts/expert_rows.h"
#include "kernels/cuda/experts/next_choice.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 4;  // per CTA, one row each

struct SigmoidRouteParams {
  const float *logits, *correction;
  int32_t* experts;
  float* weights;
  int32_t n_tokens, n_experts, n_used;
  bool over_used;
  SigmoidRouting routing;
};

__device__ __forceinline__ float MinusInfinity() { return __uint_as_float(0xff800000u); }

__device__ __forceinline__ float WeightOf(float logit) {
  return logit == logit ? Sigmoid</*kExact=*/true>(logit) : 0.0f;
}

// Sets the scores of all experts outside the best groups to -inf. counts: [n_groups].
__device__ __forceinline__ void KeepBestGroups(const SigmoidRouteParams& p, int lane, float* scores,
                                               float* counts) {
  const int32_t n_groups = p.routing.n_groups, size = p.n_experts / n_groups;
  for (int32_t g = lane; g < n_groups; g += kWarpThreads) {
    float best = MinusInfinity(), second = MinusInfinity();
    for (int32_t e = g * size; e < (g + 1) * size; ++e) {
      second = fmaxf(second, fminf(best, scores[e]));
      best = fmaxf(best, scores[e]);
    }
    counts[g] = best + second;
  }
  __syncwarp();
  for (int32_t g = lane; g < n_groups; g += kWarpThreads) {
    int32_t n_better = 0;  // the lower group comes first on a tie
    for (int32_t other = 0; other < n_groups; ++other) {
      n_better += counts[other] > counts[g] || (counts[other] == counts[g] && other < g) ? 1 : 0;
    }
    if (n_better < p.routing.n_used_groups) continue;
    for (int32_t e = g * size; e < (g + 1) * size; ++e) scores[e] = MinusInfinity();
  }
  __syncwarp();
}

// One warp per row. n_used times, it selects the largest remaining score; the lowest expert wins a
// tie.
__global__ void __launch_bounds__(kWarps* kWarpThreads)
    SigmoidRouteKernel(const SigmoidRouteParams p) {
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp;
  if (row >= p.n_tokens) return;
  const float* const logits = p.logits + row * p.n_experts;
  int32_t* const experts = p.experts + row * p.n_used;
  float* const weights = p.weights + row * p.n_used;
  float* const scores = reinterpret_cast<float*>(DynamicShared()) +
                        static_cast<int64_t>(warp) * (p.n_experts + p.routing.n_groups);
  for (int32_t e = lane; e < p.n_experts; e += kWarpThreads) {
    scores[e] = WeightOf(logits[e]) + (p.correction != nullptr ? p.correction[e] : 0.0f);
  }
  __syncwarp();
  if (p.routing.n_groups > 1) KeepBestGroups(p, lane, scores, scores + p.n_experts);

  Choice last;
  float sum = 0;
  for (int32_t i = 0; i < p.n_used; ++i) {
    last = NextChoice(p.n_experts, last, lane, [&](int32_t e) { return scores[e]; });
    const float weight = WeightOf(logits[last.expert]);
    sum += weight;
    if (lane == 0) {
      experts[i] = last.expert;
      weights[i] = weight;
    }
  }
  __syncwarp();
  const float factor = p.routing.factor / (p.over_used ? fmaxf(sum, 1e-20f) : 1.0f);
  for (int32_t i = lane; i < p.n_used; i += kWarpThreads) weights[i] *= factor;
}

}  // namespace

cudaError_t SigmoidRoute(const Stream& stream, const RouteArgs& args) {
  const SigmoidRouting& routing = *args.sigmoid;
  SC_CHECK(args.n_experts <= kMaxExperts && args.n_experts % routing.n_groups == 0);
  const SigmoidRouteParams params{.logits = args.logits,
                                  .correction = args.correction,
                                  .experts = args.experts,
                                  .weights = args.weights,
                                  .n_tokens = args.n_tokens,
                                  .n_experts = args.n_experts,
                                  .n_used = args.n_used,
                                  .over_used = args.over_used,
                                  .routing = routing};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_tokens, kWarps))),
                          .block = kWarps * kWarpThreads,
                          .shared_bytes = sizeof(float) * kWarps *
                                          static_cast<size_t>(args.n_experts + routing.n_groups)};
  return Launch<&SigmoidRouteKernel>(stream, shape, params);
}

}  // namespace stagecoach::kernels::cuda
