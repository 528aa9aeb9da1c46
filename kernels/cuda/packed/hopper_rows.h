// y = x w^T for tens to hundreds of rows and packed weights, with Hopper's instructions. Codes
// become operands of warpgroup MMAs in registers, and x is the other operand, in shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/packed/few_rows.h"

namespace stagecoach::kernels::cuda {

// How the work is cut. Any choice computes the same up to the order of additions.
struct HopperRowsWay {
  int32_t tile_rows;    // rows of x at a time: 32, 64 or 128
  int32_t n_parts = 0;  // CTAs of a cluster, which split the blocks of inputs; 0: chosen, at most 8
};

// Whether this build and the device have the kernel, and it takes the part: whole blocks.
bool SuitsHopperRows(const Stream& stream, const PackedPart& part);

// Beyond this number of rows, expanded weights are faster.
int32_t MostHopperRows(const PackedPart& part);

// The way that is likely to be fastest.
HopperRowsWay ChooseHopperRows(int32_t n_rows);

// Any number of rows, of 16 bits, without a norm. REQUIRES: SuitsHopperRows
cudaError_t HopperRowsBF16(const Stream& stream, const FusedProduct& fused,
                           const HopperRowsWay& way);
cudaError_t HopperRowsF16(const Stream& stream, const FusedProduct& fused,
                          const HopperRowsWay& way);

}  // namespace stagecoach::kernels::cuda
