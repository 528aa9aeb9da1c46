#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_rows.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Norm (elementwise/norm.h) and QuantizeFp8Rows in one kernel, which does not write norm.out. Same
// results. Supported: float32 rows of up to kMostNormedFp8Cols inputs, without add_to_out.
inline constexpr int32_t kMostNormedFp8Cols = 16384;
bool HasNormedFp8Rows(const NormArgs& norm);
cudaError_t QuantizeNormedFp8Rows(const Stream& stream, const NormArgs& norm, const Fp8Inputs& out);

}  // namespace stagecoach::kernels::cuda
