// GEMMs with Hopper instructions (wgmma, TMA), with several tile shapes. With Additions::kInOrder a
// row's result has the same bits for every tile shape and any number of rows, because its inputs
// are added in one order. The other shapes use split-K: they split the inputs over several CTAs.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

enum class Additions : uint8_t { kInOrder, kAny };

// Indices of the tile shapes worth trying, the one with the lowest estimated time first. Empty:
// this build has no such kernels, or they do not support the GEMM; this does not depend on the
// number of rows. Supported: x and w of the same 16-bit dtype, a multiple of 128 inputs and of 8
// outputs, and y either of that dtype without bias and add_to_y, or float32.
std::vector<int> HopperGemmWays(const Stream& stream, const GemmArgs& args, Additions additions);
// The number of all shapes, for tests: each works for any number of rows. REQUIRES: HopperGemmWays
// is not empty.
int32_t NHopperGemmWays(const GemmArgs& args);
Additions HopperGemmAdditions(const GemmArgs& args, int way);
// See Ops::Gemm. REQUIRES: `way` is from HopperGemmWays, for any number of rows. Returns launch
// errors, and cudaErrorNotSupported if the driver cannot encode tensor maps.
cudaError_t HopperGemm(const Stream& stream, const GemmArgs& args, int way);

// The same for Ops::GemmActivate with a gated kSilu or kGeluTanh activation; all shapes are
// kInOrder. The input of the activation is rounded like y of a GEMM, but y itself is not written.
std::vector<int> HopperGatedGemmWays(const Stream& stream, const GemmArgs& gemm,
                                     const ActivationArgs& activation);
int32_t NHopperGatedGemmWays(const GemmArgs& gemm);
cudaError_t HopperGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation, int way);

}  // namespace stagecoach::kernels::cuda
