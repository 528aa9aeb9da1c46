#include "kernels/cuda/experts/experts.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/gemm/skinny_gemm.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kGroupingThreads = 1024;

__device__ __forceinline__ float OrMinusInfinity(float x) {
  return x == x ? x : __uint_as_float(0xff800000u);
}

// One warp per row. n_used times, it selects the largest remaining logit; the lowest expert wins a
// tie.
__global__ void __launch_bounds__(kWarps* kWarpThreads) RouteKernel(const RouteArgs p) {
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  if (row >= p.n_tokens) return;
  const float* const logits = p.logits + row * p.n_experts;
  int32_t* const experts = p.experts + row * p.n_used;
  float* const weights = p.weights + row * p.n_used;

  float max = 0;
  float last = 0;  // logit of the previous choice; below, its expert
  int32_t last_expert = -1;
  for (int32_t i = 0; i < p.n_used; ++i) {
    float best = 0;
    int32_t expert = INT32_MAX;
    for (int32_t e = lane; e < p.n_experts; e += kWarpThreads) {
      const float logit = OrMinusInfinity(logits[e]);
      // Experts that were already chosen have a larger logit, or the same one and a lower id.
      const bool is_left = i == 0 || logit < last || (logit == last && e > last_expert);
      if (is_left && (expert == INT32_MAX || logit > best)) {
        best = logit;
        expert = e;
      }
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, best, mask);
      const int32_t other_expert = __shfl_xor_sync(kAllLanes, expert, mask);
      const bool better = other_expert != INT32_MAX && (expert == INT32_MAX || other > best ||
                                                        (other == best && other_expert < expert));
      best = better ? other : best;
      expert = better ? other_expert : expert;
    }
    if (i == 0) max = best;
    last = best;
    last_expert = expert;
    if (lane == 0) {
      experts[i] = expert;
      weights[i] = best;
    }
  }
  __syncwarp();
  float total = 0;
  if (p.over_used) {
    for (int32_t i = lane; i < p.n_used; i += kWarpThreads) total += expf(weights[i] - max);
  } else {
    for (int32_t e = lane; e < p.n_experts; e += kWarpThreads) {
      total += expf(OrMinusInfinity(logits[e]) - max);
    }
  }
  total = WarpSum(total);
  __syncwarp();
  for (int32_t i = lane; i < p.n_used; i += kWarpThreads) {
    weights[i] = expf(weights[i] - max) / total;
  }
}

struct GroupingParams {
  const int32_t* experts;  // [P], as in ExpertScratch
  int32_t n_pairs, n_experts;
  int32_t* n_groups;
  RowGroup* groups;
  int32_t* order;
};

// One CTA. The order of pairs within an expert is random, but no result depends on it.
__global__ void __launch_bounds__(kGroupingThreads) GroupingKernel(const GroupingParams p) {
  __shared__ int32_t starts[kMaxExperts], group_starts[kMaxExperts];
  LetNextStart();
  WaitForPrevious();
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t e = thread; e < p.n_experts; e += kGroupingThreads) starts[e] = 0;
  __syncthreads();
  for (int32_t i = thread; i < p.n_pairs; i += kGroupingThreads) {
    atomicAdd(&starts[p.experts[i]], 1);
  }
  __syncthreads();
  if (thread == 0) {
    int32_t pairs = 0, groups = 0;
    for (int32_t e = 0; e < p.n_experts; ++e) {
      const int32_t n = starts[e];
      starts[e] = pairs;
      group_starts[e] = groups;
      pairs += n;
      groups += (n + kMaxSkinnyRows - 1) / kMaxSkinnyRows;
    }
    *p.n_groups = groups;
  }
  __syncthreads();
  for (int32_t e = thread; e < p.n_experts; e += kGroupingThreads) {
    const int32_t end = e + 1 < p.n_experts ? starts[e + 1] : p.n_pairs;
    for (int32_t first = starts[e], i = group_starts[e]; first < end;
         first += kMaxSkinnyRows, ++i) {
      p.groups[i] = {e, first, min(end - first, kMaxSkinnyRows)};
    }
  }
  __syncthreads();
  for (int32_t i = thread; i < p.n_pairs; i += kGroupingThreads) {
    p.order[atomicAdd(&starts[p.experts[i]], 1)] = i;
  }
}

struct CombineParams {
  const float* y;          // [T, n_used, hidden]
  const int32_t* experts;  // [T, n_used]
  const float* weights;    // [T, n_used]
  float* out;              // [T, hidden]
  int32_t n_used, hidden;
};

// out[t] += the sum over the row's experts, in ascending order of expert id. One CTA per row.
__global__ void CombineKernel(const CombineParams p) {
  LetNextStart();
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const int32_t* const experts = p.experts + row * p.n_used;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.hidden;
       i += static_cast<int32_t>(blockDim.x)) {
    float sum = p.out[row * p.hidden + i];
    int32_t last = -1;
    for (int32_t turn = 0; turn < p.n_used; ++turn) {
      int32_t next = -1;
      for (int32_t j = 0; j < p.n_used; ++j) {
        if (experts[j] > last && (next < 0 || experts[j] < experts[next])) next = j;
      }
      last = experts[next];
      sum += p.weights[row * p.n_used + next] * p.y[(row * p.n_used + next) * p.hidden + i];
    }
    p.out[row * p.hidden + i] = sum;
  }
}

}  // namespace

cudaError_t Route(const Stream& stream, const RouteArgs& args) {
  SC_CHECK(args.n_used >= 1 && args.n_used <= args.n_experts);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_tokens, kWarps))),
                          .block = kWarps * kWarpThreads};
  return Launch<&RouteKernel>(stream, shape, args);
}

size_t ExpertScratchBytes(const ExpertShape& shape, DType dtype) {
  return ExpertScratch(shape, dtype).bytes;
}

cudaError_t ExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                      const void* const* down) {
  const int32_t n_experts = static_cast<int32_t>(args.up.size());
  SC_CHECK(n_experts > 0 && n_experts <= kMaxExperts && args.down.size() == args.up.size());
  const Matrix& first_down = args.down.front();
  const DType dtype = first_down.dtype;
  SC_CHECK(args.x.dtype == dtype);
  const int32_t hidden = first_down.rows, width = first_down.cols;
  const int32_t n_pairs = args.n_tokens * args.n_used;
  const ExpertScratch parts({args.n_tokens, n_experts, args.n_used, hidden, width}, dtype);
  RowGroup* const groups = ExpertScratch::At<RowGroup>(args.scratch, parts.groups);
  int32_t* const n_groups = ExpertScratch::At<int32_t>(args.scratch, parts.n_groups);
  int32_t* const order = ExpertScratch::At<int32_t>(args.scratch, parts.order);
  const Act up_out(ExpertScratch::At<void*>(args.scratch, parts.up), dtype);
  const Act activated(ExpertScratch::At<void*>(args.scratch, parts.activation), dtype);
  float* const y = ExpertScratch::At<float>(args.scratch, parts.y);

  cudaError_t error = Launch<&GroupingKernel>(
      stream, {.grid = dim3(1), .block = kGroupingThreads},
      GroupingParams{args.experts, n_pairs, n_experts, n_groups, groups, order});
  if (error != cudaSuccess) return error;
  GroupedGemmArgs gemm{.x = args.x.data,
                       .dtype = dtype,
                       .weights = up,
                       .rows = 2 * width,
                       .cols = hidden,
                       .groups = groups,
                       .n_groups = n_groups,
                       .max_groups = static_cast<int32_t>(parts.max_groups),
                       .x_rows = order,
                       .x_divisor = args.n_used,
                       .y_rows = nullptr,
                       .y = up_out};
  error = GroupedGemm(stream, gemm);
  if (error != cudaSuccess) return error;
  error = Activate(stream, {.x = up_out,
                            .out = activated,
                            .n_rows = n_pairs,
                            .width = width,
                            .kind = args.kind,
                            .gated = true});
  if (error != cudaSuccess) return error;
  gemm.x = activated.data;
  gemm.weights = down;
  gemm.rows = hidden;
  gemm.cols = width;
  gemm.x_rows = nullptr;
  gemm.y_rows = order;
  gemm.y = y;
  error = GroupedGemm(stream, gemm);
  if (error != cudaSuccess) return error;
  return Launch<&CombineKernel>(
      stream, {.grid = dim3(static_cast<unsigned>(args.n_tokens)), .block = 256},
      CombineParams{y, args.experts, args.weights, args.out, args.n_used, hidden});
}

}  // namespace stagecoach::kernels::cuda
