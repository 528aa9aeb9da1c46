// A normalized row in registers (Ops::Norm), for kernels with one CTA per row.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct NormParams {
  const void* x;
  const float *weight, *bias;
  void* out;
  int32_t width;
  NormKind kind;
  float eps;
  bool add_to_out;
};

// kItems pieces of kN elements per thread. Piece i of thread t starts at (i * threads + t) * kN.
template <typename X, int kN, int kItems>
struct NormedRow {
  float at[kItems][kN];

  static __device__ __forceinline__ int Element(int item) {
    return (item * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kN;
  }

  // sums: [2], in shared memory. Calls WaitForPrevious().
  __device__ __forceinline__ void Load(const NormParams& p, float (*sums)[kWarpThreads]) {
    // Safe before WaitForPrevious(): no kernel writes the weights.
    float weight[kItems][kN];
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      if (Element(item) < p.width) LoadFloats<kN>(p.weight + Element(item), weight[item]);
    }
    WaitForPrevious();
    const X* const x = static_cast<const X*>(p.x) + int64_t{blockIdx.x} * p.width;
    float sum = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      if (Element(item) >= p.width) continue;
      LoadFloats<kN>(x + Element(item), at[item]);
#pragma unroll
      for (int e = 0; e < kN; ++e) sum += at[item][e];
    }
    const bool centered = p.kind == NormKind::kLayerNorm;
    const float mean = centered ? BlockSum(sum, sums[0]) / static_cast<float>(p.width) : 0.0f;
    float square = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      if (Element(item) >= p.width) continue;
#pragma unroll
      for (int e = 0; e < kN; ++e) square += (at[item][e] - mean) * (at[item][e] - mean);
    }
    const float variance = BlockSum(square, sums[1]) / static_cast<float>(p.width);
    const float scale = 1.0f / sqrtf(variance + p.eps);
    const float weight_offset = p.kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      if (Element(item) >= p.width) continue;
      float bias[kN] = {};
      if (p.bias != nullptr) LoadFloats<kN>(p.bias + Element(item), bias);
#pragma unroll
      for (int e = 0; e < kN; ++e) {
        at[item][e] = (at[item][e] - mean) * scale * (weight[item][e] + weight_offset) + bias[e];
      }
    }
  }
};

}  // namespace stagecoach::kernels::cuda
