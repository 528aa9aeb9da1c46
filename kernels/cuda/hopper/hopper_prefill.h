// Prefill on Hopper's own instructions (wgmma, the bulk tensor copy engine) by FlashInfer's
// kernels, FA3: J. Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
// Low-precision", 2024. bfloat16 without a window. Keys and values are gathered from the cache
// first (gather_keys.h): that takes a hundredth of the time, and the copy engine then brings whole
// tiles of them.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/gather_keys.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// The step's work, in memory of the device: tiles of HopperTileRows tokens and one query head.
struct HopperPlan {
  GatherPlan gather;
  // [n_all_multiprocessors + 1]: the works of each block; FlashInfer starts one a multiprocessor
  const int32_t* block_starts;
  // [n_works]: head, which of its sequence's tiles it is, the sequence's first row, its first
  // gathered key, its rows, its keys, its number
  const int32_t *heads, *tiles, *first_rows, *first_keys, *n_rows, *n_keys, *seqs;
  int32_t n_works;   // on the host, as the next
  int32_t n_passes;  // one after another, each over so many'th part of the heads, with these works
};

// Tokens of a tile; 0: there is no such kernel in this build.
int32_t HopperTileRows(DType dtype, int32_t head_dim, bool with_softcap);

// The sequences that the plan names. REQUIRES: HopperTileRows, compute capability 9.0, no window.
// keys: room for those of all, or with several passes of as large a part of the KV heads.
cudaError_t HopperPrefill(const Stream& stream, const AttentionArgs& args, const HopperPlan& plan,
                          const GatheredKeys& keys, const KvSides& sides);

}  // namespace stagecoach::kernels::cuda
