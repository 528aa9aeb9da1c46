#include "kernels/cuda/experts/experts.h"

#include <cstring>

#include "common/check.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/biased_activation.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/experts/expert_rows.h"
#include "kernels/cuda/experts/few_tokens.h"
#include "kernels/cuda/experts/next_choice.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/experts/sigmoid_route.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/hopper/hopper_grouped.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 8;

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
  Choice last;
  for (int32_t i = 0; i < p.n_used; ++i) {
    last =
        NextChoice(p.n_experts, last, lane, [&](int32_t e) { return OrMinusInfinity(logits[e]); });
    if (i == 0) max = last.score;
    if (lane == 0) {
      experts[i] = last.expert;
      weights[i] = last.score;
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
    const float scale = p.expert_scales != nullptr ? p.expert_scales[experts[i]] : 1.0f;
    weights[i] = scale * expf(weights[i] - max) / total;
  }
}

}  // namespace

cudaError_t Route(const Stream& stream, const RouteArgs& args) {
  SC_CHECK(args.n_used >= 1 && args.n_used <= args.n_experts);
  if (args.sigmoid) return SigmoidRoute(stream, args);
  if (HasRouteInRegisters(args)) return RouteInRegisters(stream, args);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_tokens, kWarps))),
                          .block = kWarps * kWarpThreads};
  return Launch<&RouteKernel>(stream, shape, args);
}

size_t ExpertScratchBytes(const ExpertShape& shape, DType dtype) {
  return ExpertScratch(shape, dtype).bytes;
}

namespace {

// Byte offset of the tensor maps in a table.
size_t MapsAt(size_t n_matrices) {
  return (n_matrices * sizeof(void*) + kTensorMapBytes - 1) / kTensorMapBytes * kTensorMapBytes;
}
const void* ExpertTableMaps(const void* const* table, size_t n_matrices) {
  return reinterpret_cast<const unsigned char*>(table) + MapsAt(n_matrices);
}

// The memory and the sizes of a call.
struct Parts {
  Parts(const ExpertMlpArgs& args, const Matrix& down)
      : dtype(down.dtype),
        n_experts(static_cast<int32_t>(args.down.size())),
        hidden(down.rows),
        width(down.cols),
        n_pairs(args.n_tokens * args.n_used),
        layout({args.n_tokens, n_experts, args.n_used, hidden, width}, dtype),
        scratch(args.scratch) {}

  template <typename T>
  T* At(size_t start) const {
    return ExpertScratch::At<T>(scratch, start);
  }

  DType dtype;
  int32_t n_experts, hidden, width, n_pairs;
  ExpertScratch layout;
  void* scratch;
};

GroupPairsArgs Grouping(const ExpertMlpArgs& args, const Parts& parts) {
  return {.experts = args.experts,
          .n_pairs = parts.n_pairs,
          .n_experts = parts.n_experts,
          .tile_rows = kMaxSkinnyRows,
          .n_tiles = parts.At<int32_t>(parts.layout.n_groups),
          .groups = nullptr,
          .tiles = nullptr,
          // The grouping is done before `up` is written. It is large enough: a part has 1024 pairs.
          .counts = parts.At<int32_t>(parts.layout.up),
          .order = parts.At<int32_t>(parts.layout.order),
          .places = parts.At<int32_t>(parts.layout.places)};
}

// Between the two GEMMs, on rows that are sorted by expert.
cudaError_t ActivateExperts(const Stream& stream, const ExpertMlpArgs& args, const Parts& parts,
                            const int32_t* order) {
  const ActivationArgs activation{.x = {parts.At<void>(parts.layout.up), parts.dtype},
                                  .out = {parts.At<void>(parts.layout.activation), parts.dtype},
                                  .n_rows = parts.n_pairs,
                                  .width = parts.width,
                                  .kind = args.kind,
                                  .gated = true,
                                  .clamped = args.clamped};
  return IsPlain(args) ? Activate(stream, activation)
                       : ActivateBiased(stream, activation, {args.up_bias, args.experts, order});
}

CombineArgs Combining(const ExpertMlpArgs& args, const Parts& parts) {
  return {.y = {parts.At<void>(parts.layout.y), DType::kF32},
          .places = nullptr,
          .experts = args.experts,
          .weights = args.weights,
          .bias = args.down_bias,
          .out = args.out,
          .n_tokens = args.n_tokens,
          .n_used = args.n_used,
          .width = parts.hidden};
}

cudaError_t HopperExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                            const void* const* down) {
  const Parts parts(args, args.down.front());
  const ExpertScratch& at = parts.layout;
  GroupPairsArgs grouping = Grouping(args, parts);
  grouping.tile_rows = HopperGroupedTileRows(parts.n_pairs, parts.n_experts);
  grouping.tiles = parts.At<RowTile>(at.groups);
  void* const sorted_x = parts.At<void>(at.sorted_x);
  const Act up_out(parts.At<void>(at.up), parts.dtype);
  const Act activated(parts.At<void>(at.activation), parts.dtype);
  const Act y(parts.At<void>(at.y), parts.dtype);
  const bool is_plain = IsPlain(args);

  cudaError_t error = GroupPairs(stream, grouping);
  if (error != cudaSuccess) return error;
  error = SortRows(stream, {.x = args.x,
                            .places = grouping.places,
                            .out = sorted_x,
                            .n_tokens = args.n_tokens,
                            .n_used = args.n_used,
                            .width = parts.hidden});
  if (error != cudaSuccess) return error;
  HopperGroupedArgs gemm{.x = {sorted_x, parts.dtype},
                         .maps = ExpertTableMaps(up, args.up.size()),
                         .n_rows = parts.n_pairs,
                         .rows = 2 * parts.width,
                         .cols = parts.hidden,
                         .tiles = grouping.tiles,
                         .n_tiles = grouping.n_tiles,
                         .max_tiles = static_cast<int32_t>(at.max_groups),
                         .tile_rows = grouping.tile_rows,
                         .y = is_plain ? activated : up_out,
                         .gated = is_plain,
                         .kind = args.kind};
  error = HopperGroupedGemm(stream, gemm);
  if (error == cudaSuccess && !is_plain) {
    error = ActivateExperts(stream, args, parts, grouping.order);
  }
  if (error != cudaSuccess) return error;
  gemm.x = activated;
  gemm.maps = ExpertTableMaps(down, args.down.size());
  gemm.rows = parts.hidden;
  gemm.cols = parts.width;
  gemm.y = y;
  gemm.gated = false;
  error = HopperGroupedGemm(stream, gemm);
  if (error != cudaSuccess) return error;
  CombineArgs combining = Combining(args, parts);
  combining.y = y;
  combining.places = grouping.places;
  return CombineExperts(stream, combining);
}

cudaError_t SkinnyExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                            const void* const* down) {
  const Parts parts(args, args.down.front());
  const ExpertScratch& at = parts.layout;
  GroupPairsArgs grouping = Grouping(args, parts);
  grouping.groups = parts.At<RowGroup>(at.groups);
  const Act up_out(parts.At<void>(at.up), parts.dtype);
  const Act activated(parts.At<void>(at.activation), parts.dtype);

  cudaError_t error = GroupPairs(stream, grouping);
  if (error != cudaSuccess) return error;
  GroupedGemmArgs gemm{.x = args.x.data,
                       .dtype = parts.dtype,
                       .weights = up,
                       .rows = 2 * parts.width,
                       .cols = parts.hidden,
                       .groups = grouping.groups,
                       .n_groups = grouping.n_tiles,
                       .max_groups = static_cast<int32_t>(at.max_groups),
                       .x_rows = grouping.order,
                       .x_divisor = args.n_used,
                       .y_rows = nullptr,
                       .y = up_out};
  error = GroupedGemm(stream, gemm);
  if (error != cudaSuccess) return error;
  error = ActivateExperts(stream, args, parts, grouping.order);
  if (error != cudaSuccess) return error;
  gemm.x = activated.data;
  gemm.weights = down;
  gemm.rows = parts.hidden;
  gemm.cols = parts.width;
  gemm.x_rows = nullptr;
  gemm.y_rows = grouping.order;
  gemm.y = {parts.At<void>(at.y), DType::kF32};
  error = GroupedGemm(stream, gemm);
  if (error != cudaSuccess) return error;
  return CombineExperts(stream, Combining(args, parts));
}

bool IsForHopper(const Stream& stream, const ExpertMlpArgs& args) {
  const bool is_gated = IsPlain(args);
  const bool has_kind = args.kind == Activation::kSilu || args.kind == Activation::kGeluTanh;
  return stream.groups_gemms && (!is_gated || has_kind) &&
         HasHopperGrouped(stream, args.up, is_gated) &&
         HasHopperGrouped(stream, args.down, /*gated=*/false);
}

}  // namespace

size_t ExpertTableBytes(size_t n_matrices) {
  return MapsAt(n_matrices) + n_matrices * kTensorMapBytes;
}

cudaError_t FillExpertTable(const Stream& stream, std::span<const Matrix> matrices,
                            unsigned char* table) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    const void* const address = matrices[i].buffer.data.get();
    std::memcpy(table + i * sizeof(address), &address, sizeof(address));
  }
  if (!stream.groups_gemms || !HasHopperGrouped(stream, matrices, /*gated=*/false)) {
    return cudaSuccess;
  }
  return MakeMatrixMaps(matrices, table + MapsAt(matrices.size()));
}

cudaError_t ExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                      const void* const* down, bool batch_invariant) {
  SC_CHECK(!args.up.empty() && args.up.size() <= kMaxExperts &&
           args.down.size() == args.up.size() && args.x.dtype == args.down.front().dtype);
  if (args.n_tokens == 0) return cudaSuccess;
  if (!batch_invariant && SuitFewTokens(args)) {
    const Parts parts(args, args.down.front());
    return FewTokensExpertMlp(stream, args, up, down, parts.At<void>(parts.layout.activation));
  }
  // For a model always one of the two, whatever the number of rows: they round differently.
  return IsForHopper(stream, args) ? HopperExpertMlp(stream, args, up, down)
                                   : SkinnyExpertMlp(stream, args, up, down);
}

}  // namespace stagecoach::kernels::cuda
