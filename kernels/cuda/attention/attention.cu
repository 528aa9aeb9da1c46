#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/hopper/hopper_fixed_prefill.h"

namespace stagecoach::kernels::cuda {

bool HasAttentionTile(DType dtype, int32_t head_dim) {
  constexpr int32_t kDims[] = {STAGECOACH_CUDA_HEAD_DIMS};
  return dtype != DType::kF32 &&
         std::find(std::begin(kDims), std::end(kDims), head_dim) != std::end(kDims);
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
  const int64_t prefill = setup.fixed_units ? NPrefillBlocks(stream) * floats(kPrefillRows) : 0;
  return {.n_floats = std::max(decode, prefill),
          .n_counters = n_decode_states * (setup.fixed_units ? 1 : kMergeLevels)};
}

cudaError_t TileAttention(const Stream& stream, const AttentionArgs& args,
                          const AttentionPlan& plan, const AttentionSetup& setup,
                          const AttentionMemory& memory, const GatheredKeys& gathered,
                          const KvSides& sides) {
  SC_CHECK(args.qkv.dtype == args.kv.dtype && args.out.dtype == args.kv.dtype);
  const StepInputs& step = *args.step;
  const AttentionParams params{
      .qkv = args.qkv.data,
      .k = args.kv.k,
      .v = args.kv.v,
      .sides = sides,
      .l2 = stream.l2,
      .out = args.out.data,
      .seq_starts = step.seq_starts,
      .seq_positions = step.seq_positions,
      .seq_slots = step.seq_slots,
      .block_tables = step.groups[static_cast<size_t>(args.group)].block_tables,
      .plan = plan,
      .memory = memory,
      .scale = ScoreScale::Of(args.scale, args.softcap),
      .block_table_stride = step.block_table_stride,
      .n_heads = args.n_heads,
      .n_kv_heads = args.n_kv_heads,
      .window = args.window,
      .unit_blocks = setup.unit_blocks,
      .fixed_units = setup.fixed_units};
  if (plan.hopper.n_works > 0) {
    const cudaError_t error = HopperPrefill(stream, args, plan.hopper, gathered, sides);
    if (error != cudaSuccess) return error;
  }
  if (plan.n_tiles > 0) {
    const cudaError_t error = setup.prefill_rows == kHopperFixedRows
                                  ? HopperFixedPrefill(stream, params, args.kv.dtype)
                                  : PrefillAttention(stream, params, args.kv.dtype, args.head_dim);
    if (error != cudaSuccess) return error;
  }
  if (plan.max_decodes == 0) return cudaSuccess;
  return setup.fixed_units ? FixedDecodeAttention(stream, params, args.kv.dtype, args.head_dim)
                           : DecodeAttention(stream, params, args.kv.dtype, args.head_dim);
}

}  // namespace stagecoach::kernels::cuda
