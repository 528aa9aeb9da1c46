// y = x w^T for one row and packed weights whose codes are cheap in float16.
//
// few_rows.h is bound by instructions: for one row, an H200 could read 4-bit weights twice as fast
// as it makes bfloat16 values of them. As float16, a code in the low bits of a 16-bit value is a
// subnormal number, exactly code * 2^-24, without any instruction but the mask. So this kernel
// multiplies float16 values (gemm/one_row.h converts x), and subtracts zeros and minima from a
// group's sum, times the sum of the group's inputs, which is computed once for all outputs.
#pragma once

#include "kernels/cuda/packed/few_rows.h"

namespace stagecoach::kernels::cuda {

// Whether the functions below compute the product: one row, Q4_K, MXFP4, or INT4 and INT8 with
// 16-bit scales for 32, 128, or 256 and more inputs.
bool SuitsOneRow(const Stream& stream, const FusedProduct& fused);

// The result differs from few_rows.h's by the rounding of float32 sums, so it is not for the
// batch-invariant mode. REQUIRES: SuitsOneRow
cudaError_t OneRowBF16(const Stream& stream, const FusedProduct& fused);
cudaError_t OneRowF16(const Stream& stream, const FusedProduct& fused);

// What the kernel takes of an SM.
struct OneRowShape {
  int n_ctas = 0;           // per SM; 0: shared memory does not suffice
  int n_stages = 0;         // blocks in flight per warp
  size_t shared_bytes = 0;  // dynamic shared memory of a CTA
};
inline constexpr int kMostOneRowCtas = 3;  // as registers allow
OneRowShape OneRowShapeOf(const Stream& stream, const PackedPart& w);

}  // namespace stagecoach::kernels::cuda
