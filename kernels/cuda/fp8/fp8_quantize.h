// How a CTA turns a row into e4m3 codes.
#pragma once

#include "common/encoding/encoding.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/fp8/fp8_codes.h"

namespace stagecoach::kernels::cuda {

// The factor for codes of a row with this largest magnitude, and the scale of the codes. A row of
// zeros has neither.
__device__ __forceinline__ float Fp8Factor(float largest) {
  return largest > 0 ? kLargestFp8 / largest : 0;
}
__device__ __forceinline__ float Fp8Scale(float largest) { return largest / kLargestFp8; }

// The largest value of a CTA's threads. shared: [32]; see BlockSum
__device__ __forceinline__ float BlockMax(float value, float* shared) {
  value = WarpMax(value);
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int n_warps = blockDim.x / kWarpThreads;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return WarpMax(shared[lane < n_warps ? lane : 0]);
}

}  // namespace stagecoach::kernels::cuda
