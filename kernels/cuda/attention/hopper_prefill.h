// Prefill with Hopper instructions (wgmma, TMA) by FlashInfer's FA3 kernels. Source: J. Shah et
// al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision", 2024. It
// supports bfloat16 without a window. Keys and values are first gathered from the paged cache
// (gather_keys.h): this takes about 1% of the time, and TMA can then copy whole tiles.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/gather_keys.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// A step's work in device memory. A work item is a tile of HopperTileRows tokens and one query
// head.
struct HopperPlan {
  GatherPlan gather;
  // [n_all_multiprocessors + 1]: first work item of each CTA; FlashInfer launches one CTA per SM.
  const int32_t* block_starts;
  // [n_works] each: query head, tile index in its sequence, first row, first gathered key, number
  // of rows and number of keys of the sequence, index of the sequence.
  const int32_t *heads, *tiles, *first_rows, *first_keys, *n_rows, *n_keys, *seqs;
  int32_t n_works;   // known on the host, like n_passes
  int32_t n_passes;  // passes over 1 / n_passes of the heads each, with the same work items
};

// Tokens per tile; 0: this build has no such kernel.
int32_t HopperTileRows(DType dtype, int32_t head_dim, bool with_softcap);

// Processes the sequences of the plan. REQUIRES: HopperTileRows > 0; compute capability 9.0; no
// window. keys: has room for the gathered keys of all KV heads, or of 1 / n_passes of them.
cudaError_t HopperPrefill(const Stream& stream, const AttentionArgs& args, const HopperPlan& plan,
                          const GatheredKeys& keys, const KvSides& sides);

}  // namespace stagecoach::kernels::cuda
