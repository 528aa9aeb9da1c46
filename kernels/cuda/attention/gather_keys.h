// Gathers keys and values of sequences from the paged cache into contiguous memory, for kernels
// that read large tiles with TMA (the bulk tensor copy engine).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Arrays in device memory. KV blocks are numbered consecutively over all sequences.
struct GatherPlan {
  const int32_t*
      block_starts;  // [n_seqs + 1]: prefix sum, with padding to whole kGatheredTile tiles
  const int32_t* first_entries;  // [n_seqs]: first entry in the block tables
  const int32_t* n_keys;         // [n_seqs]
  int32_t n_seqs;                // known on the host, like n_blocks
  int32_t n_blocks;              // block_starts[n_seqs]
};

// Gather buffer: k and v are [n_kv_heads, capacity, head_dim] each.
struct GatheredKeys {
  void *k, *v;
  int64_t capacity;  // in keys; a multiple of kGatheredTile

  // The same memory for 1 / n_parts of the KV heads, with room for n_parts times as many keys.
  GatheredKeys OfPart(int32_t n_parts) const { return {k, v, capacity * n_parts}; }
};
// A range of the KV heads.
struct KvHeads {
  int32_t first, n;
};

// Keys that `bytes` can hold, with a 16-bit type.
int64_t GatheredCapacity(size_t bytes, int32_t n_kv_heads, int32_t head_dim);
GatheredKeys GatheredIn(void* memory, size_t bytes, int32_t n_kv_heads, int32_t head_dim);

// Gathers only `heads`; an FP8 cache is gathered as numbers of args.qkv.dtype. REQUIRES: that or a
// 16-bit cache; plan.n_blocks * kBlockTokens <= to.capacity.
cudaError_t GatherKeys(const Stream& stream, const AttentionArgs& args, const GatherPlan& plan,
                       const KvHeads& heads, const GatheredKeys& to, const KvSides& sides);

}  // namespace stagecoach::kernels::cuda
