// A product with a bias, whatever y's dtype.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Gemms::Run, except that y may also have 16 bits if there is a bias: a kernel of its own adds it.
absl::Status BiasedGemm(const Stream& stream, Gemms& gemms, const GemmArgs& args);

}  // namespace stagecoach::kernels::cuda
