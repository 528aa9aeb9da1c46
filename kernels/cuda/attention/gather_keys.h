// Sequences' keys and values out of the paged cache, one key after another, for kernels that read
// them in large pieces by the bulk tensor copy engine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/step/scratch_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Arrays in memory of the device. KV blocks of the sequences are counted through.
struct GatherPlan {
  const int32_t* block_starts;   // [n_seqs + 1]: of a sequence, with what fills up its last tile
  const int32_t* first_entries;  // [n_seqs]: in the block tables
  const int32_t* n_keys;         // [n_seqs]
  int32_t n_seqs;                // on the host, as the next
  int32_t n_blocks;              // block_starts[n_seqs]
};

// Where they are gathered: [n_kv_heads, capacity, head_dim] each.
struct GatheredKeys {
  void *k, *v;
  int64_t capacity;  // in keys; a multiple of kGatheredTile

  // The same memory for a part of the KV heads, with room for so many times as many keys.
  GatheredKeys OfPart(int32_t n_parts) const { return {k, v, capacity * n_parts}; }
};
// A part of the KV heads.
struct KvHeads {
  int32_t first, n;
};

// What so many bytes hold. A type of 16 bits.
int64_t GatheredCapacity(size_t bytes, int32_t n_kv_heads, int32_t head_dim);
GatheredKeys GatheredIn(void* memory, size_t bytes, int32_t n_kv_heads, int32_t head_dim);

// Takes `heads` alone. REQUIRES: a cache of 16 bits, plan.n_blocks * kBlockTokens <= to.capacity.
cudaError_t GatherKeys(const Stream& stream, const AttentionArgs& args, const GatherPlan& plan,
                       const KvHeads& heads, const GatheredKeys& to, const KvSides& sides);

}  // namespace stagecoach::kernels::cuda
