// How kernels for packed weights find the rows and the matrix of a group (GroupedPackedArgs).
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/packed/few_rows.h"

namespace stagecoach::kernels::cuda {

// Off: a product of one matrix, whose rows follow one another.
struct PackedGroups {
  const void* const* weights = nullptr;
  int64_t tiles_at = 0;
  const RowGroup* groups = nullptr;
  const int32_t* n_groups = nullptr;
  const int32_t* x_rows = nullptr;
  int32_t x_divisor = 1;
  const int32_t* y_rows = nullptr;
  const int32_t* experts = nullptr;
  ClampedGlu clamped = {};
  const float* bias = nullptr;

  // Whether there is a group i. It is known when the previous kernel is done.
  __device__ __forceinline__ bool Has(int i) const { return experts != nullptr || i < *n_groups; }
  __device__ __forceinline__ RowGroup Group(int i) const {
    return experts != nullptr ? RowGroup{experts[i], i, 1} : groups[i];
  }
  __device__ __forceinline__ bool is_on() const { return weights != nullptr; }
  __device__ __forceinline__ const unsigned char* TilesOf(int matrix) const {
    return static_cast<const unsigned char*>(weights[matrix]) + tiles_at;
  }
  __device__ __forceinline__ int RowOfX(int row) const {
    if (experts != nullptr) return row / x_divisor;
    return x_rows == nullptr ? row : x_rows[row] / x_divisor;
  }
  __device__ __forceinline__ int RowOfY(int row) const {
    return y_rows == nullptr ? row : y_rows[row];
  }
};

inline PackedGroups GroupsOf(const GroupedPackedArgs& args) {
  const GroupedGemmArgs& gemm = args.gemm;
  return {.weights = gemm.weights,
          .tiles_at = args.tiles_at,
          .groups = gemm.groups,
          .n_groups = gemm.n_groups,
          .x_rows = gemm.x_rows,
          .x_divisor = gemm.x_divisor,
          .y_rows = gemm.y_rows,
          .experts = args.experts,
          .clamped = args.clamped,
          .bias = args.bias};
}

// The product of each group, as far as it is the same for all of them.
inline PackedProduct ProductOf(const GroupedPackedArgs& args) {
  const Act& y = args.gemm.y;
  return {.w = args.w,
          .x = args.gemm.x,
          .bias = nullptr,
          .y = static_cast<unsigned char*>(y.data) +
               static_cast<size_t>(args.first_output) * DTypeBytes(y.dtype),
          .n_rows = args.most_rows,
          .y_stride = args.is_gated ? args.gemm.rows / 2 : args.gemm.rows,
          .add_to_y = false,
          .y_is_float = y.dtype == DType::kF32};
}

}  // namespace stagecoach::kernels::cuda
