// Prefill in fixed units (AttentionSetup) on Hopper's warpgroup products, with the same bits as
// attention_prefill.cu's and those of decode: the same 16 elements and 16 keys are added at a time,
// in the same order, and the hardware does not add in another order within them.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct AttentionParams;

// Packed rows of a tile.
inline constexpr int32_t kHopperFixedRows = 128;

// Whether there is such a kernel in this build.
bool HasHopperFixedPrefill(DType dtype, int32_t head_dim, bool with_softcap);

// The tiles of params.plan, of kHopperFixedRows rows. REQUIRES: HasHopperFixedPrefill, compute
// capability 9.0, fixed units of a multiple of 4 blocks.
cudaError_t HopperFixedPrefill(const Stream& stream, const AttentionParams& params, DType dtype);

}  // namespace stagecoach::kernels::cuda
