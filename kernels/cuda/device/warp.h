// Reductions over the threads of a warp and of a CTA. Every thread gets the result. The order of
// additions is always the same.
#pragma once

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarpThreads = 32;

template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
  return value;
}

template <typename T>
__device__ __forceinline__ T WarpMax(T value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// shared: [32] in shared memory, reusable after the next __syncthreads. The CTA is one-dimensional,
// and blockDim.x is a multiple of 32.
template <typename T>
__device__ __forceinline__ T BlockSum(T value, T* shared) {
  value = WarpSum(value);
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int n_warps = blockDim.x / kWarpThreads;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return WarpSum(lane < n_warps ? shared[lane] : T(0));
}

}  // namespace stagecoach::kernels::cuda
