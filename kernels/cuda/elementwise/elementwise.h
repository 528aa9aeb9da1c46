// Kernels that look at each element once.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// As the operations of the same names. Errors are those of the launch.
cudaError_t Embed(const Stream& stream, const EmbedArgs& args);
cudaError_t GatherRows(const Stream& stream, const GatherRowsArgs& args);
cudaError_t Activate(const Stream& stream, const ActivationArgs& args);
cudaError_t SoftCap(const Stream& stream, float* x, int64_t n, float cap);

// y[t][i] += bias[i]; y: [n_rows, width]
cudaError_t AddBias(const Stream& stream, Act y, const float* bias, int32_t n_rows, int32_t width);
// n values from one type to another
cudaError_t Convert(const Stream& stream, ConstAct from, Act to, int64_t n);

}  // namespace stagecoach::kernels::cuda
