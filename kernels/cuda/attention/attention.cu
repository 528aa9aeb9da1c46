#include "kernels/cuda/attention/attention.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/hopper_packed_prefill.h"

namespace stagecoach::kernels::cuda {
namespace {

// Size of the states before the part states: one per CTA of PrefillAttention, for the units merged
// so far.
int64_t FloatsOfUnits(const Stream& stream, const AttentionSetup& setup, int32_t head_dim) {
  if (!setup.fixed_units || setup.prefill_rows == kHopperPackedRows) return 0;
  return int64_t{MaxPrefillBlocks(stream)} * kPrefillRows * (head_dim + 16);
}

int64_t FloatsOfPart(const AttentionSetup& setup, int32_t head_dim) {
  return int64_t{setup.prefill_rows} * (head_dim + 2);
}

}  // namespace

bool HasAttentionTile(DType dtype, int32_t head_dim) {
  constexpr int32_t kDims[] = {STAGECOACH_CUDA_HEAD_DIMS};
  return dtype != DType::kF32 &&
         std::find(std::begin(kDims), std::end(kDims), head_dim) != std::end(kDims);
}

int32_t NPrefillBlocks(const Stream& stream, const AttentionSetup& setup, int32_t head_dim) {
  // CTAs per SM, as shared memory and registers allow.
  const bool is_alone = setup.prefill_rows == kHopperPackedRows || head_dim > 128;
  return stream.n_multiprocessors * (is_alone ? 1 : 2);
}

int32_t MaxPrefillBlocks(const Stream& stream) { return 2 * stream.n_all_multiprocessors; }

int32_t MaxPartStates(const Stream& stream, const AttentionSetup& setup,
                      const AttentionNeeds& needs, int32_t head_dim) {
  return static_cast<int32_t>((needs.n_floats - FloatsOfUnits(stream, setup, head_dim)) /
                              FloatsOfPart(setup, head_dim));
}

AttentionNeeds NeedsOf(const Stream& stream, const AttentionSetup& setup, int32_t n_heads,
                       int32_t n_kv_heads, int32_t head_dim, int32_t max_slots,
                       int32_t max_blocks) {
  const int64_t passes = int64_t{n_kv_heads} * DecodePasses(n_heads, n_kv_heads);
  const int64_t n_units = CeilDiv(max_blocks, setup.unit_blocks) + 1;
  const int64_t n_decode_states =
      setup.fixed_units ? n_units * max_slots * passes : 2 * int64_t{MaxDecodeBlocks(stream)};
  const auto floats = [&](int64_t rows) { return rows * (head_dim + 16); };
  const int64_t decode = n_decode_states * floats(8 * DecodeRowTiles(n_heads, n_kv_heads));
  // Two states per CTA are enough to cut the keys evenly. Kept units need more.
  const int64_t n_part_states = (setup.fixed_units ? 8 : 2) * int64_t{MaxPrefillBlocks(stream)};
  const int64_t prefill =
      FloatsOfUnits(stream, setup, head_dim) + n_part_states * FloatsOfPart(setup, head_dim);
  return {.n_floats = std::max(decode, prefill),
          .n_counters = n_decode_states * (setup.fixed_units ? 1 : kMergeLevels)};
}

AttentionParams ParamsOf(const Stream& stream, const AttentionArgs& args, const AttentionPlan& plan,
                         const AttentionSetup& setup, const AttentionMemory& memory) {
  const StepInputs& step = *args.step;
  return {.qkv = args.qkv.data,
          .k = args.kv.k,
          .v = args.kv.v,
          .sides = {},
          .l2 = stream.l2,
          .out = args.out.data,
          .seq_starts = step.seq_starts,
          .seq_positions = step.seq_positions,
          .seq_slots = step.seq_slots,
          .block_tables = step.groups[static_cast<size_t>(args.group)].block_tables,
          .plan = plan,
          .memory = memory,
          .scale = ScoreScale::Of(args.scale, args.softcap),
          .sinks = {args.sinks},
          .block_table_stride = step.block_table_stride,
          .n_heads = args.n_heads,
          .n_kv_heads = args.n_kv_heads,
          .n_in_row = args.n_heads + NKvVectors(args.kv_of_row) * args.n_kv_heads,
          .window = args.window,
          .unit_blocks = setup.unit_blocks,
          .fixed_units = setup.fixed_units,
          .prefill_rows = setup.prefill_rows};
}

cudaError_t TileAttention(const Stream& stream, const AttentionArgs& args,
                          const AttentionPlan& plan, const AttentionSetup& setup,
                          const AttentionMemory& memory, const GatheredKeys& gathered,
                          const KvSides& sides) {
  const DType dtype = args.qkv.dtype;
  const bool is_fp8 = args.kv.dtype == DType::kFp8;
  SC_CHECK((is_fp8 || args.kv.dtype == dtype) && args.out.dtype == dtype);
  AttentionParams params = ParamsOf(stream, args, plan, setup, memory);
  params.sides = sides;
  params.part_states = memory.states + FloatsOfUnits(stream, setup, args.head_dim);
  if (plan.hopper.n_works > 0) {
    const cudaError_t error = HopperPrefill(stream, args, plan.hopper, gathered, sides);
    if (error != cudaSuccess) return error;
  }
  if (plan.n_prefill_blocks > 0) {
    const auto prefill = setup.prefill_rows == kHopperPackedRows ? &HopperPackedPrefill
                         : is_fp8                                ? &PrefillFp8Attention
                                                                 : &PrefillAttention;
    cudaError_t error = prefill(stream, params, dtype, args.head_dim);
    if (error == cudaSuccess && plan.n_merges > 0) {
      error = MergeParts(stream, params, dtype, args.head_dim);
    }
    if (error != cudaSuccess) return error;
  }
  if (plan.max_decodes == 0) return cudaSuccess;
  const auto decode = setup.fixed_units
                          ? (is_fp8 ? &FixedDecodeFp8Attention : &FixedDecodeAttention)
                          : (is_fp8 ? &DecodeFp8Attention : &DecodeAttention);
  return decode(stream, params, dtype, args.head_dim);
}

}  // namespace stagecoach::kernels::cuda
