// Rings of stages in shared memory, which one warp fills and others empty.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

// The place in a ring, and the parity of the phase of its barrier.
struct RingTurn {
  int at = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Next(int n) {
    if (++at == n) {
      at = 0;
      parity ^= 1;
    }
  }
};

}  // namespace stagecoach::kernels::cuda
