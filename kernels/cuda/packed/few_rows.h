// y = x w^T for few rows and packed weights. As in gemm/skinny_gemm.h, reading the weights is the
// limit: they are read once, and become 16-bit values in registers.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/gemm/row_norm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/packed/packed_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// One part's share of Ops::Gemm.
struct PackedProduct {
  PackedPart w;       // its order has no effect
  const void* x;      // [n_rows, w.cols], in the order of the stored inputs
  const float* bias;  // [w.rows] or null
  void* y;            // [n_rows, y_stride]: the part's outputs
  int32_t n_rows;
  int32_t y_stride;
  bool add_to_y;
  bool y_is_float;  // float32; else x's type
};

// What happens before and after the product.
struct FusedProduct {
  PackedProduct product;
  RowNorm norm = {};  // with norm.x: of one row, instead of product.x
  // The first half of the outputs are gates of the second. y: [n_rows, w.rows / 2] of x's type.
  // Both are rounded to it before. REQUIRES: w.rows is a multiple of 32
  bool is_gated = false;
  Activation activation = Activation::kSilu;
};

// Warps of a CTA of these kernels and of one_row.h, which split a tile's inputs, and blocks in
// flight per warp (block_ring.h).
inline constexpr int kRingWarps = 8;
inline constexpr int kMostRingStages = 3, kLeastRingStages = 2;

// Any number of rows, of 16 bits; each 16 of them read the weights once. A row's result does not
// depend on other rows.
cudaError_t FewRowsBF16(const Stream& stream, const FusedProduct& fused);
cudaError_t FewRowsF16(const Stream& stream, const FusedProduct& fused);

// One part's share of a GroupedGemm (gemm/skinny_gemm.h) whose matrices are packed and have the
// same parts.
struct GroupedPackedArgs {
  // weights: the memory of each matrix. rows: of the whole matrix, and so the width of y.
  GroupedGemmArgs gemm;
  PackedPart w;          // of each matrix, without its address
  int64_t tiles_at;      // bytes from a matrix's memory to the part's tiles
  int32_t first_output;  // of the part
  int32_t most_rows;     // that a group can have
  // In place of gemm.groups: row i is a group, of the matrix experts[i]. x has a row for each
  // gemm.x_divisor of them.
  const int32_t* experts = nullptr;
  // The first half of the outputs are gates of the second: y [., gemm.rows / 2] of x's type. Both
  // are rounded to it before.
  bool is_gated = false;
  Activation activation = Activation::kSilu;
  ClampedGlu clamped = {};
  const float* bias = nullptr;  // [matrices, gemm.rows], added before the activation; or null
};

// x has 16 bits. A row's result has the bits of FewRowsBF16 and FewRowsF16. REQUIRES: if gated, the
// part is the whole matrix
cudaError_t GroupedFewRowsBF16(const Stream& stream, const GroupedPackedArgs& args);
cudaError_t GroupedFewRowsF16(const Stream& stream, const GroupedPackedArgs& args);

}  // namespace stagecoach::kernels::cuda
