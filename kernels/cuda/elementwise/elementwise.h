// Elementwise kernels.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// See the operations of the same names. Errors are launch errors.
cudaError_t Embed(const Stream& stream, const EmbedArgs& args);
cudaError_t GatherRows(const Stream& stream, const GatherRowsArgs& args);
cudaError_t Activate(const Stream& stream, const ActivationArgs& args);
cudaError_t Scale(const Stream& stream, float* x, int64_t n, const float* factor);
cudaError_t SoftCap(const Stream& stream, float* x, int64_t n, float cap);

// y[t][i] += bias[i]; y: [n_rows, width]
cudaError_t AddBias(const Stream& stream, Act y, const float* bias, int32_t n_rows, int32_t width);
// Converts n values to to's dtype.
cudaError_t Convert(const Stream& stream, ConstAct from, Act to, int64_t n);

}  // namespace stagecoach::kernels::cuda
