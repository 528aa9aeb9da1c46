// The device code of row_norm.h.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/gemm/row_norm.h"

namespace stagecoach::kernels::cuda {

inline constexpr int kRowNormThreads = 256;  // of a CTA

// Writes the normalized row (Ops::Norm) to to[width]. sums: [32], shared. Calls WaitForPrevious().
template <typename T>
__device__ __forceinline__ void NormRow(const RowNorm& norm, int width, float* sums, T* to) {
  constexpr int kN = 4, kThreads = kRowNormThreads;
  constexpr int kItems = kMaxNormedWidth / (kN * kThreads);
  const auto element = [](int item) {
    return (item * kThreads + static_cast<int>(threadIdx.x)) * kN;
  };
  float weight[kItems][kN], x[kItems][kN];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) < width) LoadFloats<kN>(norm.weight + element(item), weight[item]);
  }
  WaitForPrevious();
  float square = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= width) continue;
    LoadFloats<kN>(norm.x + element(item), x[item]);
#pragma unroll
    for (int e = 0; e < kN; ++e) square += x[item][e] * x[item][e];
  }
  const float variance = BlockSum(square, sums) / static_cast<float>(width);
  const float scale = 1.0f / sqrtf(variance + norm.eps);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= width) continue;
    float y[kN];
#pragma unroll
    for (int e = 0; e < kN; ++e) {
      y[e] = x[item][e] * scale * (weight[item][e] + norm.weight_offset);
    }
    StoreFloats<kN>(y, to + element(item));
  }
  __syncthreads();
}

}  // namespace stagecoach::kernels::cuda
