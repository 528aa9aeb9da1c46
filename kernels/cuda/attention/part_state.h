// Partial result of prefill for a tile's rows, if other parts have the rest of the keys.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

// Layout in float32: [n_rows, kDim] elements, then base and sum of each row, as in AttentionTile. A
// row that sees none of the keys has sum 0 and undefined elements.
template <int kDim>
struct PartState {
  float* at;
  int32_t n_rows;  // per tile

  __host__ __device__ static constexpr int64_t Floats(int32_t n_rows) {
    return int64_t{n_rows} * (kDim + 2);
  }
  __device__ __forceinline__ float* Row(int32_t row) const { return at + int64_t{row} * kDim; }
  __device__ __forceinline__ float2* BaseAndSum(int32_t row) const {
    return reinterpret_cast<float2*>(at + int64_t{n_rows} * kDim) + row;
  }
};

}  // namespace stagecoach::kernels::cuda
