// Prefill on Hopper's own instructions (wgmma, the bulk tensor copy engine) by FlashInfer's
// kernels, FA3: J. Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
// Low-precision", 2024. bfloat16 without a window.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// The step's work, in memory of the device: tiles of HopperTileRows tokens, for every query head.
struct HopperPlan {
  // [n_all_multiprocessors + 1]: the tiles of each block; FlashInfer starts one a multiprocessor
  const int32_t* block_starts;
  // [n_tiles], by tile: which of its sequence it is, the sequence's first row and first entry in
  // the block tables, its rows, its keys, its number
  const int32_t *tiles, *first_rows, *first_entries, *n_rows, *n_keys, *seqs;
  int32_t n_tiles;  // on the host
};

// Tokens of a tile; 0: there is no such kernel in this build.
int32_t HopperTileRows(DType dtype, int32_t head_dim, bool with_softcap);

// The sequences that the plan names. REQUIRES: HopperTileRows, compute capability 9.0, no window.
cudaError_t HopperPrefill(const Stream& stream, const AttentionArgs& args, const HopperPlan& plan);

}  // namespace stagecoach::kernels::cuda
