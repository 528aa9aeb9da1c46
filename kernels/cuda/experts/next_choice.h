// Chooses a row's experts one after the other, by a warp.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {

struct Choice {
  float score = 0;
  int32_t expert = -1;
};

// The expert with the largest score after `last` was chosen; the lower id comes first on a tie. All
// lanes of a warp call this and get the same result. score_of(expert): not NaN. REQUIRES: an expert
// is left.
template <typename ScoreOf>
__device__ __forceinline__ Choice NextChoice(int32_t n_experts, const Choice& last, int lane,
                                             const ScoreOf& score_of) {
  float best = 0;
  int32_t expert = INT32_MAX;
  for (int32_t e = lane; e < n_experts; e += kWarpThreads) {
    const float score = score_of(e);
    // Experts that were already chosen have a larger score, or the same one and a lower id.
    const bool is_left =
        last.expert < 0 || score < last.score || (score == last.score && e > last.expert);
    if (is_left && (expert == INT32_MAX || score > best)) {
      best = score;
      expert = e;
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, best, mask);
    const int32_t other_expert = __shfl_xor_sync(kAllLanes, expert, mask);
    const bool better = other_expert != INT32_MAX && (expert == INT32_MAX || other > best ||
                                                      (other == best && other_expert < expert));
    best = better ? other : best;
    expert = better ? other_expert : expert;
  }
  return {best, expert};
}

}  // namespace stagecoach::kernels::cuda
