// Shared by decode and prefill.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/part_state.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/head_dims.h"

namespace stagecoach::kernels::cuda {

struct AttentionParams {
  const void* qkv;
  const void *k, *v;
  KvSides sides;  // empty with fixed units
  L2Sides l2;
  void* out;
  const int32_t *seq_starts, *seq_positions, *seq_slots, *block_tables;
  AttentionPlan plan;
  AttentionMemory memory;
  ScoreScale scale;
  Sinks sinks;
  int32_t block_table_stride;
  int32_t n_heads, n_kv_heads;
  int32_t n_in_row;  // heads of a row of qkv
  KeyWindow window;
  int32_t unit_blocks;
  bool fixed_units;
  int32_t prefill_rows;          // per tile
  float* part_states = nullptr;  // PartStates of the prefill parts
  int32_t team_blocks = 0;       // TeamDecodeKernel: maximum number of KV blocks per round
  __host__ __device__ int32_t group() const { return n_heads / n_kv_heads; }
  template <int kDim>
  __device__ __forceinline__ PartState<kDim> StateOf(int32_t index) const {
    return {part_states + index * PartState<kDim>::Floats(prefill_rows), prefill_rows};
  }
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

// The rows of a sequence for one KV head, packed: the query heads of a token are consecutive rows.
struct PrefillRows {
  const int32_t* table;
  int32_t kv_head, group, n_rows;
  int32_t first_token_row, seq_position;

  __device__ __forceinline__ static PrefillRows Of(const AttentionParams& p, int32_t seq,
                                                   int32_t kv_head) {
    const int32_t row = p.seq_starts[seq], group = p.group();
    return {.table = p.block_tables + int64_t{p.seq_slots[seq]} * p.block_table_stride,
            .kv_head = kv_head,
            .group = group,
            .n_rows = (p.seq_starts[seq + 1] - row) * group,
            .first_token_row = row,
            .seq_position = p.seq_positions[seq]};
  }
  __device__ __forceinline__ int32_t PositionOf(int32_t row) const {
    return seq_position + row / group;
  }
  __device__ __forceinline__ int32_t HeadOf(int32_t row) const {
    return kv_head * group + row % group;
  }
  // The head that packed row `row` refers to, in an array [tokens, n_all_heads, kDim].
  template <int kDim, typename E>
  __device__ __forceinline__ E* RowOf(E* array, int32_t row, int32_t n_all_heads) const {
    const int64_t token = first_token_row + row / group;
    return array + (token * n_all_heads + HeadOf(row)) * kDim;
  }
};

// A part of a prefill plan. Units are counted from the sequence's first token.
struct PrefillItem : PrefillRows {
  PrefillPart part;

  // End row of a tile of `rows` rows.
  __device__ __forceinline__ int32_t EndRow(int32_t rows) const {
    return min(part.first_row + rows, n_rows);
  }
  // The last key of the part that any row before end_row sees.
  __device__ __forceinline__ int32_t LastKey(int32_t end_row) const {
    return min(PositionOf(end_row - 1), part.end_key_tile * kKeyTile - 1);
  }
  // The first KV block of the part that any of its rows sees.
  __device__ __forceinline__ int32_t FirstBlock(const KeyWindow& window) const {
    return max(window.First(PositionOf(part.first_row)) / kBlockTokens,
               part.first_key_tile * kKeyTileBlocks);
  }
  __device__ __forceinline__ int32_t UnitOf(const AttentionParams& p, int32_t key_tile) const {
    return key_tile * kKeyTileBlocks / p.unit_blocks;
  }
  // The state of a unit whose result is kept.
  template <int kDim>
  __device__ __forceinline__ PartState<kDim> StateOfUnit(const AttentionParams& p,
                                                         int32_t unit) const {
    return p.StateOf<kDim>(part.state + unit - UnitOf(p, part.first_key_tile));
  }
  // Calls leave(state) for each kept unit before `first_seen` or after `last_seen`.
  template <int kDim, typename Leave>
  __device__ __forceinline__ void ForUnseenStates(const AttentionParams& p, int32_t first_seen,
                                                  int32_t last_seen, const Leave& leave) const {
    const int32_t end = UnitOf(p, part.end_key_tile - 1) + 1;
    for (int32_t unit = UnitOf(p, part.first_key_tile); unit < end; ++unit) {
      if (unit < first_seen || unit > last_seen) leave(StateOfUnit<kDim>(p, unit));
    }
  }
};

// Calls run(PrefillItem) for each part of this CTA.
template <typename Run>
__device__ __forceinline__ void ForEachPrefillItem(const AttentionParams& p, const Run& run) {
  const int32_t* const starts = p.plan.part_starts + blockIdx.x;
  const int32_t end = LoadPlan(starts + 1);
  for (int32_t i = LoadPlan(starts); i < end; ++i) {
    const PrefillPart part = LoadPlan(p.plan.parts + i);
    run(PrefillItem{PrefillRows::Of(p, part.seq, part.kv_head), part});
  }
}

// The parameters of a call, without sides and part states.
AttentionParams ParamsOf(const Stream& stream, const AttentionArgs& args, const AttentionPlan& plan,
                         const AttentionSetup& setup, const AttentionMemory& memory);

// Launch the kernels for a step's decodes and prefills. They return launch errors, and
// cudaErrorInvalidValue for a head size without a kernel.
cudaError_t DecodeAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                            int32_t head_dim);
cudaError_t FixedDecodeAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                                 int32_t head_dim);
cudaError_t PrefillAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                             int32_t head_dim);
// The same for an FP8 cache. dtype: of the activations
cudaError_t DecodeFp8Attention(const Stream& stream, const AttentionParams& params, DType dtype,
                               int32_t head_dim);
cudaError_t FixedDecodeFp8Attention(const Stream& stream, const AttentionParams& params,
                                    DType dtype, int32_t head_dim);
cudaError_t PrefillFp8Attention(const Stream& stream, const AttentionParams& params, DType dtype,
                                int32_t head_dim);
// Runs plan.merges.
cudaError_t MergeParts(const Stream& stream, const AttentionParams& params, DType dtype,
                       int32_t head_dim);
cudaError_t MergeWideParts(const Stream& stream, const AttentionParams& params, DType dtype,
                           int32_t value_dim);

// Each CTA of the decode kernel may leave two partial results. They are merged in at most this many
// levels.
inline constexpr int64_t kMergeLevels = 4;

// Calls call.operator()<T, kDim>() for a 16-bit dtype and a supported head size. Other head sizes
// return cudaErrorInvalidValue.
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
