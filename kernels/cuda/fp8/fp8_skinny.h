// y = x w^T for few rows and FP8 weights with plain rows: the kernel of gemm/skinny_gemm.h. Inputs
// keep their 16 bits, and codes become 16-bit values in registers, exactly.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_part.h"
#include "kernels/cuda/fp8/fp8_rows.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// x has 16 bits. Any number of rows; each 16 of them read the weights once. A row's result does not
// depend on other rows, except that a row alone has a faster kernel if not batch_invariant: it adds
// in another order.
cudaError_t Fp8Skinny(const Stream& stream, const Fp8Product& product, bool batch_invariant);

// Not batch-invariant: what one kernel does, if it supports that (gemm/skinny_gemm.h): a norm
// before the product, and a gated activation after it. The matrix has one part, w.
struct Fp8Fused {
  Fp8Part w;
  const NormArgs* norm;              // or null
  const GemmArgs* gemm;              // x and y; y is not written if there is an activation
  const ActivationArgs* activation;  // or null
};
bool HasFp8Fused(const Fp8Fused& fused);
cudaError_t RunFp8Fused(const Stream& stream, const Fp8Fused& fused);

}  // namespace stagecoach::kernels::cuda
