// Merges the part states of prefill tiles into the output. It is a separate kernel, not the last
// CTA of each tile, so that all SMs take part.
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/part_state.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 8;  // per CTA, one row each

template <typename T, int kDim>
__global__ void __launch_bounds__(kWarps* kWarpThreads) MergePartsKernel(const AttentionParams p) {
  constexpr int kPairs = (kDim + 2 * kWarpThreads - 1) / (2 * kWarpThreads);  // per lane
  constexpr int kAtOnce = 8 / kPairs > 1 ? 8 / kPairs : 2;  // states that load together
  LetNextStart();
  WaitForPrevious();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t row_of_tile =
      static_cast<int32_t>(blockIdx.x) * kWarps + static_cast<int32_t>(threadIdx.x) / kWarpThreads;
  const PrefillMerge merge = LoadPlan(p.plan.merges + blockIdx.y);
  if (merge.n_states == 0) return;
  const PrefillRows rows = PrefillRows::Of(p, merge.seq, merge.kv_head);
  const int32_t row = merge.first_row + row_of_tile;
  if (row_of_tile >= p.prefill_rows || row >= rows.n_rows) return;
  const auto state = [&](int32_t i) { return p.StateOf<kDim>(merge.first_state + i); };
  const auto is_there = [&](int i) { return 2 * (lane + i * kWarpThreads) < kDim; };

  // Merges in key order, like a CTA that merges its own units. Starting from an empty state does
  // not change any bit of the first state.
  float base = MinusInfinity(), sum = 0;
  float2 pairs[kPairs] = {};
  for (int32_t first = 0; first < merge.n_states; first += kAtOnce) {
    float2 later[kAtOnce][kPairs] = {}, base_and_sum[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      base_and_sum[k] = float2{MinusInfinity(), 0};
      if (first + k >= merge.n_states) continue;
      const PartState<kDim> part = state(first + k);
      base_and_sum[k] = LoadFresh(reinterpret_cast<const float*>(part.BaseAndSum(row_of_tile)));
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        if (!is_there(i)) continue;
        later[k][i] = LoadFresh(part.Row(row_of_tile) + 2 * (lane + i * kWarpThreads));
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (base_and_sum[k].y == 0) continue;
      MergeFactors factors;
      base = factors.Set(0, base, base_and_sum[k].x);
      sum = factors.Merged(0, sum, base_and_sum[k].y);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        pairs[i].x = factors.Merged(0, pairs[i].x, later[k][i].x);
        pairs[i].y = factors.Merged(0, pairs[i].y, later[k][i].y);
      }
    }
  }
  T* const out = rows.RowOf<kDim>(static_cast<T*>(p.out), row, p.n_heads);
  const float inverse = InverseOfSum(base, sum, p.sinks.ExponentOf(rows.HeadOf(row)));
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    if (!is_there(i)) continue;
    *reinterpret_cast<uint32_t*>(out + 2 * (lane + i * kWarpThreads)) =
        PackPair<T>(pairs[i].x * inverse, pairs[i].y * inverse);
  }
}

template <typename T, int kDim>
cudaError_t LaunchMerge(const Stream& stream, const AttentionParams& params) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.prefill_rows, kWarps)),
                                       static_cast<unsigned>(params.plan.n_merges)),
                          .block = kWarps * kWarpThreads};
  return Launch<&MergePartsKernel<T, kDim>>(stream, shape, params);
}

}  // namespace

cudaError_t MergeParts(const Stream& stream, const AttentionParams& params, DType dtype,
                       int32_t head_dim) {
  return WithHead(dtype, head_dim,
                  [&]<typename T, int kDim>() { return LaunchMerge<T, kDim>(stream, params); });
}

cudaError_t MergeWideParts(const Stream& stream, const AttentionParams& params, DType dtype,
                           int32_t value_dim) {
  const auto launch = [&]<typename T>() {
    return value_dim == 256 ? LaunchMerge<T, 256>(stream, params)
                            : LaunchMerge<T, 512>(stream, params);
  };
  return dtype == DType::kBF16 ? launch.template operator()<BF16>()
                               : launch.template operator()<F16>();
}

}  // namespace stagecoach::kernels::cuda
