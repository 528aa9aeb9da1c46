// The norm of one row as part of a product with few rows: every CTA normalizes the row for itself,
// because a norm of its own takes longer.
#pragma once

#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// A float32 row that a kernel normalizes while it loads it.
struct RowNorm {
  const float *x, *weight;
  float eps, weight_offset;
};

// Widest normed row for which two CTAs fit on an SM beside the weights in flight.
inline constexpr int kMaxNormedWidth = 4096;

// Whether Ops::NormGemm and the like can normalize the product's input so.
inline bool HasRowNorm(const NormArgs& norm, const GemmArgs& gemm) {
  return norm.kind != NormKind::kLayerNorm && norm.bias == nullptr && !norm.add_to_out &&
         norm.n_rows == 1 && norm.out.data == gemm.x.data && norm.width == gemm.w->cols &&
         norm.width <= kMaxNormedWidth && norm.x.dtype == DType::kF32;
}
inline RowNorm RowNormOf(const NormArgs& norm) {
  return {.x = norm.x.f32(),
          .weight = norm.weight,
          .eps = norm.eps,
          .weight_offset = norm.kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f};
}

}  // namespace stagecoach::kernels::cuda
