// Prefill of packed rows with Hopper warpgroup MMAs, directly from the paged cache. It covers what
// HopperPrefill does not: few rows after a long context, windows, fixed units, other dtypes and
// soft caps. The bits equal those of attention_prefill.cu and of decode by fixed units: the kernels
// add the same 16 elements and 16 keys at a time in the same order, and within those the hardware
// adds in the same order.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct AttentionParams;

// Packed rows per tile.
inline constexpr int32_t kHopperPackedRows = 128;

// Whether this build has the kernel.
bool HasHopperPackedPrefill(DType dtype, int32_t head_dim);

// Processes the parts of params.plan, with tiles of kHopperPackedRows rows. REQUIRES:
// HasHopperPackedPrefill; compute capability 9.0; fixed units, if any, are a multiple of
// kKeyTileBlocks.
cudaError_t HopperPackedPrefill(const Stream& stream, const AttentionParams& params, DType dtype,
                                int32_t head_dim);

}  // namespace stagecoach::kernels::cuda
