// Products in FP8 with Hopper instructions, as in hopper_gemm.h. The sums of every 128 or 256
// inputs are added in float32, because tensor cores keep few bits of sums of FP8 products.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_gemm.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Indices of the tile shapes worth trying, the one with the lowest estimated time first. Empty:
// this build has no such kernels, or they do not support the product. Supported: a multiple of 256
// inputs, and a y that is float32, or bfloat16 without add_to_y, with the matrix's rows as stride.
std::vector<int> HopperFp8Ways(const Stream& stream, const Fp8GemmArgs& args);
// The number of all shapes, for tests. REQUIRES: HopperFp8Ways is not empty.
int32_t NHopperFp8Ways(const Fp8GemmArgs& args);
// REQUIRES: `way` is from HopperFp8Ways, for any number of rows. Returns launch errors, and
// cudaErrorNotSupported if the driver cannot encode tensor maps.
cudaError_t HopperFp8(const Stream& stream, const Fp8GemmArgs& args, int way);

// The same with a gated kSilu or kGeluTanh activation, whose input is rounded to bfloat16, like y,
// which is not written.
std::vector<int> HopperGatedFp8Ways(const Stream& stream, const Fp8GemmArgs& args,
                                    const ActivationArgs& activation);
int32_t NHopperGatedFp8Ways();
cudaError_t HopperGatedFp8(const Stream& stream, const Fp8GemmArgs& args,
                           const ActivationArgs& activation, int way);

}  // namespace stagecoach::kernels::cuda
