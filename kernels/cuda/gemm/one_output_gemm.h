#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Ops::Gemm for a matrix of one row, with any number of rows of x. cuBLASLt computes this with
// kernels for vectors, which do not serve other numbers of rows than they were chosen for. A row's
// result does not depend on other rows. REQUIRES: x and w have the same dtype.
cudaError_t OneOutputGemm(const Stream& stream, const GemmArgs& args);

}  // namespace stagecoach::kernels::cuda
