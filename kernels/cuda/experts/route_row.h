// Chooses the experts of a row by a warp, with the logits in its registers (Ops::Route).
#pragma once

#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Limits: lane l has the logits of experts l, l + 32, ..., and the choice l.
inline constexpr int kMostLogitsOfLane = 8;

// At most 256 experts in at most 32 groups, of which a row uses at most 32; softmax.
inline bool HasRouteRow(const RouteArgs& args) {
  return args.n_used >= 1 && args.n_used <= args.n_experts && args.n_used <= kWarpThreads &&
         args.n_experts <= kMostLogitsOfLane * kWarpThreads &&
         args.softmax_groups.n_groups <= kWarpThreads && !args.sigmoid;
}

// Calls call.template operator()<kOfLane>() with a number of logits per lane that is enough.
template <typename Call>
auto WithLogitsOfLane(int32_t n_experts, const Call& call) {
  if (n_experts <= kWarpThreads) return call.template operator()<1>();
  if (n_experts <= 2 * kWarpThreads) return call.template operator()<2>();
  if (n_experts <= 4 * kWarpThreads) return call.template operator()<4>();
  return call.template operator()<kMostLogitsOfLane>();
}

// Keys of logits: in the same order, but as unsigned integers, so that one instruction finds a
// warp's largest. NaN counts as -inf, and -0 as 0. No logit has kTaken.
struct LogitKey {
  static constexpr uint32_t kTaken = 0, kSign = 0x80000000u;

  __device__ __forceinline__ static uint32_t Of(float logit) {
    const float x = logit == logit ? logit + 0.0f : __uint_as_float(0xff800000u);
    const uint32_t bits = __float_as_uint(x);
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
  __device__ __forceinline__ static float Logit(uint32_t key) {
    return __uint_as_float((key & kSign) != 0 ? key & ~kSign : ~key);
  }
};

// Takes the experts outside the best groups out of `left`, the keys of all experts. A warp
// collective.
template <int kOfLane>
__device__ __forceinline__ void KeepBestGroups(const RouteArgs& p, int lane,
                                               uint32_t (&left)[kOfLane]) {
  const SoftmaxGroups& groups = p.softmax_groups;
  const int32_t size = p.n_experts / groups.n_groups;
  uint32_t of_group = LogitKey::kTaken;  // the best key of group `lane`
  for (int32_t g = 0; g < groups.n_groups; ++g) {
    uint32_t best = LogitKey::kTaken;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if ((lane + k * kWarpThreads) / size == g) best = max(best, left[k]);
    }
    best = __reduce_max_sync(kAllLanes, best);
    if (lane == g) of_group = best;
  }
  int32_t n_better = 0;  // the lower group comes first on a tie
  for (int32_t g = 0; g < groups.n_groups; ++g) {
    const uint32_t other = __shfl_sync(kAllLanes, of_group, g);
    n_better += other > of_group || (other == of_group && g < lane) ? 1 : 0;
  }
  const uint32_t kept =
      __ballot_sync(kAllLanes, lane < groups.n_groups && n_better < groups.n_used_groups);
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int32_t expert = lane + k * kWarpThreads;
    if (expert < p.n_experts && (kept >> (expert / size) & 1) == 0) left[k] = LogitKey::kTaken;
  }
}

// logits: the lane's; what is beyond the last expert does not count. A warp collective.
template <int kOfLane>
__device__ __forceinline__ void RouteRow(const RouteArgs& p, int64_t row,
                                         const float (&logits)[kOfLane], int lane) {
  uint32_t all[kOfLane], left[kOfLane];  // keys; of those that are not chosen
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    all[k] = lane + k * kWarpThreads < p.n_experts ? LogitKey::Of(logits[k]) : LogitKey::kTaken;
    left[k] = all[k];
  }
  if (p.softmax_groups.n_groups > 1) KeepBestGroups(p, lane, left);
  float max = 0, chosen = 0;  // chosen: the logit of the lane's choice
  uint32_t chosen_expert = 0;
  for (int32_t i = 0; i < p.n_used; ++i) {
    uint32_t key = left[0], expert = static_cast<uint32_t>(lane);
#pragma unroll
    for (int k = 1; k < kOfLane; ++k) {
      if (left[k] > key) {
        key = left[k];
        expert = static_cast<uint32_t>(lane + k * kWarpThreads);
      }
    }
    const uint32_t best = __reduce_max_sync(kAllLanes, key);
    const uint32_t best_expert = __reduce_min_sync(kAllLanes, key == best ? expert : ~0u);
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (static_cast<uint32_t>(lane + k * kWarpThreads) == best_expert) {
        left[k] = LogitKey::kTaken;
      }
    }
    if (i == 0) max = LogitKey::Logit(best);
    if (i == lane) {
      chosen = LogitKey::Logit(best);
      chosen_expert = best_expert;
    }
  }
  const float power = lane < p.n_used ? expf(chosen - max) : 0;
  float total = power;
  if (!p.over_used) {
    total = 0;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      if (all[k] != LogitKey::kTaken) total += expf(LogitKey::Logit(all[k]) - max);
    }
  }
  total = WarpSum(total);
  if (lane < p.n_used) {
    p.experts[row * p.n_used + lane] = static_cast<int32_t>(chosen_expert);
    const float scale = p.expert_scales != nullptr ? p.expert_scales[chosen_expert] : 1.0f;
    p.weights[row * p.n_used + lane] = p.softmax_groups.factor * scale * power / total;
  }
}

}  // namespace stagecoach::kernels::cuda
