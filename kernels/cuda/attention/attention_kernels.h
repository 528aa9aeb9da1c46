// What decode and prefill share.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/head_dims.h"

namespace stagecoach::kernels::cuda {

struct AttentionParams {
  const void* qkv;
  const void *k, *v;
  KvSides sides;  // none with fixed units
  L2Sides l2;
  void* out;
  const int32_t *seq_starts, *seq_positions, *seq_slots, *block_tables;
  AttentionPlan plan;
  AttentionMemory memory;
  ScoreScale scale;
  int32_t block_table_stride;
  int32_t n_heads, n_kv_heads, window;
  int32_t unit_blocks;
  bool fixed_units;
  int32_t team_blocks = 0;  // of TeamDecodeKernel: KV blocks that a team takes at once
  __host__ __device__ int32_t group() const { return n_heads / n_kv_heads; }
};

// A row of elements in global memory.
template <typename T>
struct GlobalRow {
  const T* at;
  __device__ __forceinline__ uint4 Load16(int byte) const { return LoadOnce(Address(byte)); }
  __device__ __forceinline__ uint2 Load8(int byte) const {
    return *reinterpret_cast<const uint2*>(Address(byte));
  }
  __device__ __forceinline__ uint32_t Load4(int byte) const {
    return *reinterpret_cast<const uint32_t*>(Address(byte));
  }
  __device__ __forceinline__ const unsigned char* Address(int byte) const {
    return reinterpret_cast<const unsigned char*>(at) + byte;
  }
};

// A tile of a prefill plan with one KV head. Its rows are packed: query heads of a token follow one
// another.
struct PrefillItem {
  const int32_t* table;
  int32_t kv_head, group, first_row, n_rows;  // packed rows: of the item's first, of the sequence
  int32_t first_token_row, seq_position;

  __device__ __forceinline__ int32_t PositionOf(int32_t row) const {
    return seq_position + row / group;
  }
  // The head of a packed row in an array of [tokens, n_all_heads, kDim].
  template <int kDim, typename E>
  __device__ __forceinline__ E* RowOf(E* array, int32_t row, int32_t n_all_heads) const {
    const int64_t token = first_token_row + row / group;
    return array + (token * n_all_heads + kv_head * group + row % group) * kDim;
  }
};

// run(PrefillItem) for those of this block.
template <typename Run>
__device__ __forceinline__ void ForEachPrefillItem(const AttentionParams& p, const Run& run) {
  const int32_t n_items = p.plan.n_tiles * p.n_kv_heads;
  const auto n_blocks = static_cast<int32_t>(gridDim.x);
  for (int32_t turn = 0; turn * n_blocks < n_items; ++turn) {
    // To and fro, as the first items of a turn are the longest.
    const auto place = static_cast<int32_t>(blockIdx.x);
    const int32_t item = turn * n_blocks + (turn % 2 == 0 ? place : n_blocks - 1 - place);
    if (item >= n_items) continue;
    const PrefillTile tile = p.plan.tiles[item / p.n_kv_heads];
    const int32_t row = p.seq_starts[tile.seq];
    const int32_t group = p.group();
    run(PrefillItem{.table = p.block_tables + int64_t{p.seq_slots[tile.seq]} * p.block_table_stride,
                    .kv_head = item % p.n_kv_heads,
                    .group = group,
                    .first_row = tile.first_row,
                    .n_rows = (p.seq_starts[tile.seq + 1] - row) * group,
                    .first_token_row = row,
                    .seq_position = p.seq_positions[tile.seq]});
  }
}

cudaError_t DecodeAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                            int32_t head_dim);
cudaError_t FixedDecodeAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                                 int32_t head_dim);
cudaError_t PrefillAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                             int32_t head_dim);

// Blocks of the decode kernel may leave two partial results each, merged in no more than so many
// levels; those of the prefill kernel have one state of their rows each.
inline constexpr int64_t kMergeLevels = 4;
int64_t NPrefillBlocks(const Stream& stream);

// call.operator()<T, kDim>() for a 16-bit dtype and a head size that there is.
template <typename Call>
cudaError_t WithHead(DType dtype, int32_t head_dim, const Call& call) {
  cudaError_t error = cudaErrorInvalidValue;
  const auto try_dim = [&]<int kDim>() {
    if (head_dim != kDim) return;
    error = dtype == DType::kBF16 ? call.template operator()<BF16, kDim>()
                                  : call.template operator()<F16, kDim>();
  };
  [&]<int... kDims>(std::integer_sequence<int, kDims...>) {
    (try_dim.template operator()<kDims>(), ...);
  }(std::integer_sequence<int, STAGECOACH_CUDA_HEAD_DIMS>{});
  return error;
}

}  // namespace stagecoach::kernels::cuda
