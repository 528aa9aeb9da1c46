// Which of a step's pieces, one after another, something falls into.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

// The last i in [0, n) with starts[i] <= value. starts: of a step's plan, rising. REQUIRES:
// n > 0, starts[0] <= value.
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
