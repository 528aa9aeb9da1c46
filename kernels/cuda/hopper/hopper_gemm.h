// Products on Hopper's own instructions (wgmma, the bulk tensor copy engine), by tiles of several
// shapes. By those of Additions::kInOrder a row's result has the same bits whatever the shape and
// the number of rows: its inputs are added in one order. Others share the inputs out to several
// blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

enum class Additions : uint8_t { kInOrder, kAny };

// The shapes of tiles worth trying, by number, the likeliest to be fastest first; empty: there is
// no such kernel in this build or for such a product. Whether it is does not depend on the number
// of rows. Taken are 16-bit x and w of one type, a multiple of 128 inputs and of 8 outputs; y of
// that type without a bias and add_to_y, or float32.
std::vector<int> HopperGemmWays(const Stream& stream, const GemmArgs& args, Additions additions);
// All of them, for tests: each does for any number of rows. REQUIRES: HopperGemmWays has some.
int32_t NHopperGemmWays(const GemmArgs& args);
Additions HopperGemmAdditions(const GemmArgs& args, int way);
// As Ops::Gemm. REQUIRES: `way` of HopperGemmWays, for any number of rows.
cudaError_t HopperGemm(const Stream& stream, const GemmArgs& args, int way);

// The same for Ops::GemmActivate, all in order, where the activation is gated, by kSilu or
// kGeluTanh. What goes into the activation is rounded as a product's y would be, which itself is
// not written.
std::vector<int> HopperGatedGemmWays(const Stream& stream, const GemmArgs& gemm,
                                     const ActivationArgs& activation);
int32_t NHopperGatedGemmWays(const GemmArgs& gemm);
cudaError_t HopperGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation, int way);

}  // namespace stagecoach::kernels::cuda
