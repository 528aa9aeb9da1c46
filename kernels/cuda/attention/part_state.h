// What prefill leaves of a tile's rows where others have the rest of their keys.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

// In float32: [n_rows, kDim] elements, then of each row its base and its sum, as AttentionTile has
// them. A row that sees none of the keys has the sum 0, and its elements may be anything.
template <int kDim>
struct PartState {
  float* at;
  int32_t n_rows;  // of a tile

  __host__ __device__ static constexpr int64_t Floats(int32_t n_rows) {
    return int64_t{n_rows} * (kDim + 2);
  }
  __device__ __forceinline__ float* Row(int32_t row) const { return at + int64_t{row} * kDim; }
  __device__ __forceinline__ float2* BaseAndSum(int32_t row) const {
    return reinterpret_cast<float2*>(at + int64_t{n_rows} * kDim) + row;
  }
};

}  // namespace stagecoach::kernels::cuda
