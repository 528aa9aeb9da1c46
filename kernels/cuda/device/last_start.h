// Binary search in the start indices of a step's plan.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

// Returns the last i in [0, n) with starts[i] <= value. `starts` is an ascending array of a step's
// plan. REQUIRES: n > 0, starts[0] <= value.
__device__ __forceinline__ int32_t LastStart(const int32_t* starts, int32_t n, int32_t value) {
  int32_t low = 0, high = n;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (LoadPlan(starts + middle) <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace stagecoach::kernels::cuda
