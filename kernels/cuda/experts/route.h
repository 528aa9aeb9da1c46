// Routing: a row's experts from its logits, and for one row from its hidden state.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Ops::Route with a row's logits in the registers of a warp. At most 256 experts in at most 32
// groups, of which a row uses at most 32; softmax.
bool HasRouteInRegisters(const RouteArgs& args);
cudaError_t RouteInRegisters(const Stream& stream, const RouteArgs& args);

// Ops::NormRoute for one row, in one kernel. The squares of the row and the logits' products may be
// added in another order than by Norm and Gemm. n_done: [1] in device memory, which is 0 and is 0
// again afterwards.
bool HasNormRoute(const NormArgs& norm, const GemmArgs& gemm, const RouteArgs& route);
cudaError_t NormRoute(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm,
                      const RouteArgs& route, int32_t* n_done);

}  // namespace stagecoach::kernels::cuda
