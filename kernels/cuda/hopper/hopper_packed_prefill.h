// Prefill of packed rows on Hopper's warpgroup products, straight from the paged cache: few rows
// behind a long context, windows, fixed units, types and caps that HopperPrefill does not take.
// With the same bits as attention_prefill.cu's and those of decode by fixed units: the same 16
// elements and 16 keys are added at a time, in the same order, and the hardware does not add in
// another order within them.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct AttentionParams;

// Packed rows of a tile.
inline constexpr int32_t kHopperPackedRows = 128;

// Whether there is such a kernel in this build.
bool HasHopperPackedPrefill(DType dtype, int32_t head_dim);

// The parts of params.plan, of tiles of kHopperPackedRows rows. REQUIRES: HasHopperPackedPrefill,
// compute capability 9.0; fixed units, if any, of a multiple of kKeyTileBlocks.
cudaError_t HopperPackedPrefill(const Stream& stream, const AttentionParams& params, DType dtype,
                                int32_t head_dim);

}  // namespace stagecoach::kernels::cuda
