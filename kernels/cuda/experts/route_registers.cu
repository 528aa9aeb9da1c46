#include "kernels/cuda/experts/route_registers.h"

#include "common/check.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 4;  // per CTA
constexpr int kMostOfLane = 8;

// Keys of logits: in the same order, but as unsigned integers, so that one instruction finds a
// warp's largest. NaN counts as -inf, and -0 as 0. No logit has kTaken.
constexpr uint32_t kTaken = 0, kSign = 0x80000000u;
__device__ __forceinline__ uint32_t KeyOf(float logit) {
  const float x = logit == logit ? logit + 0.0f : __uint_as_float(0xff800000u);
  const uint32_t bits = __float_as_uint(x);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
__device__ __forceinline__ float LogitOf(uint32_t key) {
  return __uint_as_float((key & kSign) != 0 ? key & ~kSign : ~key);
}

// One warp per row. Lane l has the logits of experts l, l + 32, ...
template <int kOfLane>
__global__ void __launch_bounds__(kWarps* kWarpThreads) RouteKernel(const RouteArgs p) {
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  if (row >= p.n_tokens) return;
  const float* const logits = p.logits + row * p.n_experts;
  float of_lane[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int32_t e = lane + k * kWarpThreads;
    of_lane[k] = e < p.n_experts ? logits[e] : 0;
  }
  uint32_t keys[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    keys[k] = lane + k * kWarpThreads < p.n_experts ? KeyOf(of_lane[k]) : kTaken;
  }
  uint32_t all[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) all[k] = keys[k];

  float max = 0, chosen = 0;  // chosen: the logit of the lane's choice
  uint32_t chosen_expert = 0;
  for (int32_t i = 0; i < p.n_used; ++i) {
    uint32_t key = keys[0], expert = static_cast<uint32_t>(lane);
#pragma unroll
    for (int k = 1; k < kOfLane; ++k) {
      if (keys[k] > key) {
        key = keys[k];
        expert = static_cast<uint32_t>(lane + k * kWarpThreads);
      }
    }
    const uint32_t best = __reduce_max_sync(kAllLanes, key);
    const uint32_t best_expert = __reduce_min_sync(kAllLanes, key == best ? expert : ~0u);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (static_cast<uint32_t>(lane + k * kWarpThreads) == best_expert) keys[k] = kTaken;
    }
    if (i == 0) max = LogitOf(best);
    if (i == lane) {
      chosen = LogitOf(best);
      chosen_expert = best_expert;
    }
  }
  const float power = lane < p.n_used ? expf(chosen - max) : 0;
  float total = power;
  if (!p.over_used) {
    total = 0;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (all[k] != kTaken) total += expf(LogitOf(all[k]) - max);
    }
  }
  total = WarpSum(total);
  if (lane < p.n_used) {
    p.experts[row * p.n_used + lane] = static_cast<int32_t>(chosen_expert);
    p.weights[row * p.n_used + lane] = power / total;
  }
}

}  // namespace

bool HasRouteInRegisters(const RouteArgs& args) {
  return args.n_experts <= kMostOfLane * kWarpThreads && args.n_used <= kWarpThreads &&
         !args.sigmoid;
}

cudaError_t RouteInRegisters(const Stream& stream, const RouteArgs& args) {
  SC_CHECK(HasRouteInRegisters(args) && args.n_used >= 1 && args.n_used <= args.n_experts);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_tokens, kWarps))),
                          .block = kWarps * kWarpThreads};
  const int64_t of_lane = CeilDiv(args.n_experts, kWarpThreads);
  if (of_lane <= 1) return Launch<&RouteKernel<1>>(stream, shape, args);
  if (of_lane <= 2) return Launch<&RouteKernel<2>>(stream, shape, args);
  if (of_lane <= 4) return Launch<&RouteKernel<4>>(stream, shape, args);
  return Launch<&RouteKernel<kMostOfLane>>(stream, shape, args);
}

}  // namespace stagecoach::kernels::cuda
