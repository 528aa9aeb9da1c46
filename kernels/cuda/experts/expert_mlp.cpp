#include "kernels/cuda/experts/expert_mlp.h"

#include "common/check.h"
#include "kernels/cuda/elementwise/biased_activation.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/experts/expert_rows.h"
#include "kernels/cuda/experts/expert_tables.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/few_tokens.h"

namespace stagecoach::kernels::cuda {

ExpertCall::ExpertCall(const ExpertMlpArgs& args)
    : dtype(args.x.dtype),
      n_experts(static_cast<int32_t>(args.down.size())),
      hidden(args.down.front().rows),
      width(args.down.front().cols),
      n_pairs(args.n_tokens * args.n_used),
      up_rows((args.gated ? 2 : 1) * width),
      layout({args.n_tokens, n_experts, args.n_used, hidden, width}, dtype),
      scratch(args.scratch) {
  SC_CHECK(args.gated || IsPlain(args));
}

namespace {

GroupPairsArgs Grouping(const ExpertMlpArgs& args, const ExpertCall& call) {
  return {.experts = args.experts,
          .n_pairs = call.n_pairs,
          .n_experts = call.n_experts,
          .tile_rows = kMaxSkinnyRows,
          .n_tiles = call.At<int32_t>(call.layout.n_groups),
          .groups = nullptr,
          .tiles = nullptr,
          // The grouping is done before `up` is written. It is large enough: a part has 1024 pairs.
          .counts = call.At<int32_t>(call.layout.up),
          .order = call.At<int32_t>(call.layout.order),
          .places = call.At<int32_t>(call.layout.places)};
}

// Between the two products, on rows that are sorted by expert.
cudaError_t ActivateExperts(const Stream& stream, const ExpertMlpArgs& args, const ExpertCall& call,
                            const int32_t* order) {
  const ActivationArgs activation{.x = {call.At<void>(call.layout.up), call.dtype},
                                  .out = {call.At<void>(call.layout.activation), call.dtype},
                                  .n_rows = call.n_pairs,
                                  .width = call.width,
                                  .kind = args.kind,
                                  .gated = args.gated,
                                  .clamped = args.clamped};
  return IsPlain(args) ? Activate(stream, activation)
                       : ActivateBiased(stream, activation, {args.up_bias, args.experts, order});
}

CombineArgs Combining(const ExpertMlpArgs& args, const ExpertCall& call) {
  return {.y = {call.At<void>(call.layout.y), DType::kF32},
          .places = nullptr,
          .experts = args.experts,
          .weights = args.weights,
          .bias = args.down_bias,
          .out = args.out,
          .n_tokens = args.n_tokens,
          .n_used = args.n_used,
          .width = call.hidden};
}

}  // namespace

cudaError_t ExpertMlpOfTiles(const Stream& stream, const ExpertMlpArgs& args,
                             const TileProducts& products) {
  const ExpertCall call(args);
  const ExpertScratch& at = call.layout;
  GroupPairsArgs grouping = Grouping(args, call);
  grouping.tile_rows = products.tile_rows;
  grouping.tiles = call.At<RowTile>(at.groups);
  void* const sorted_x = call.At<void>(at.sorted_x);
  const Act up_out(call.At<void>(at.up), call.dtype);
  const Act activated(call.At<void>(at.activation), call.dtype);
  const Act y(call.At<void>(at.y), call.dtype);

  cudaError_t error = GroupPairs(stream, grouping);
  if (error != cudaSuccess) return error;
  error = SortRows(stream, {.x = args.x,
                            .places = grouping.places,
                            .out = sorted_x,
                            .n_tokens = args.n_tokens,
                            .n_used = args.n_used,
                            .width = call.hidden,
                            .order = products.x_order});
  if (error != cudaSuccess) return error;
  HopperGroupedArgs gemm{.x = {sorted_x, call.dtype},
                         .maps = nullptr,
                         .n_rows = call.n_pairs,
                         .rows = call.up_rows,
                         .cols = call.hidden,
                         .tiles = grouping.tiles,
                         .n_tiles = grouping.n_tiles,
                         .max_tiles = static_cast<int32_t>(at.max_groups),
                         .tile_rows = grouping.tile_rows,
                         .y = products.activates ? activated : up_out,
                         .gated = products.activates,
                         .kind = args.kind};
  error = products.multiply(ExpertProduct::kUp, gemm);
  if (error == cudaSuccess && !products.activates) {
    error = ActivateExperts(stream, args, call, grouping.order);
  }
  if (error != cudaSuccess) return error;
  gemm.x = activated;
  gemm.rows = call.hidden;
  gemm.cols = call.width;
  gemm.y = y;
  gemm.gated = false;
  error = products.multiply(ExpertProduct::kDown, gemm);
  if (error != cudaSuccess) return error;
  CombineArgs combining = Combining(args, call);
  combining.y = y;
  combining.places = grouping.places;
  return CombineExperts(stream, combining);
}

cudaError_t ExpertMlpOfGroups(const Stream& stream, const ExpertMlpArgs& args,
                              MultiplyGroups multiply) {
  const ExpertCall call(args);
  const ExpertScratch& at = call.layout;
  GroupPairsArgs grouping = Grouping(args, call);
  grouping.groups = call.At<RowGroup>(at.groups);
  const Act up_out(call.At<void>(at.up), call.dtype);
  const Act activated(call.At<void>(at.activation), call.dtype);

  cudaError_t error = GroupPairs(stream, grouping);
  if (error != cudaSuccess) return error;
  GroupedGemmArgs gemm{.x = args.x.data,
                       .dtype = call.dtype,
                       .weights = nullptr,
                       .rows = call.up_rows,
                       .cols = call.hidden,
                       .groups = grouping.groups,
                       .n_groups = grouping.n_tiles,
                       .max_groups = static_cast<int32_t>(at.max_groups),
                       .x_rows = grouping.order,
                       .x_divisor = args.n_used,
                       .y_rows = nullptr,
                       .y = up_out};
  error = multiply(ExpertProduct::kUp, gemm);
  if (error != cudaSuccess) return error;
  error = ActivateExperts(stream, args, call, grouping.order);
  if (error != cudaSuccess) return error;
  gemm.x = activated.data;
  gemm.rows = call.hidden;
  gemm.cols = call.width;
  gemm.x_rows = nullptr;
  gemm.y_rows = grouping.order;
  gemm.y = {call.At<void>(at.y), DType::kF32};
  error = multiply(ExpertProduct::kDown, gemm);
  if (error != cudaSuccess) return error;
  return CombineExperts(stream, Combining(args, call));
}

cudaError_t ExpertMlpOfPairs(const Stream& stream, const ExpertMlpArgs& args,
                             MultiplyGroups multiply) {
  const ExpertCall call(args);
  const Act activated(call.At<void>(call.layout.activation), call.dtype);
  GroupedGemmArgs gemm{.x = args.x.data,
                       .dtype = call.dtype,
                       .weights = nullptr,
                       .rows = call.up_rows,
                       .cols = call.hidden,
                       .groups = nullptr,
                       .n_groups = nullptr,
                       .max_groups = call.n_pairs,
                       .x_rows = nullptr,
                       .x_divisor = args.n_used,
                       .y_rows = nullptr,
                       .y = activated};
  cudaError_t error = multiply(ExpertProduct::kUp, gemm);
  if (error != cudaSuccess) return error;
  gemm.x = activated.data;
  gemm.rows = call.hidden;
  gemm.cols = call.width;
  gemm.x_divisor = 1;
  gemm.y = {call.At<void>(call.layout.y), DType::kF32};
  error = multiply(ExpertProduct::kDown, gemm);
  if (error != cudaSuccess) return error;
  return CombineExperts(stream, Combining(args, call));
}

TileProducts GroupedProducts(const ExpertMlpArgs& args, MultiplyTiles multiply) {
  return {.multiply = multiply,
          .tile_rows = HopperGroupedTileRows(args.n_tokens * args.n_used,
                                             static_cast<int32_t>(args.down.size())),
          .activates = args.gated && IsPlain(args)};
}

bool SuitTiles(const Stream& stream, const ExpertMlpArgs& args, std::span<const Matrix> up,
               std::span<const Matrix> down) {
  const bool is_gated = args.gated && IsPlain(args);
  const bool has_kind = args.kind == Activation::kSilu || args.kind == Activation::kGeluTanh;
  return stream.groups_gemms && (!is_gated || has_kind) && HasHopperGrouped(stream, up, is_gated) &&
         HasHopperGrouped(stream, down, /*gated=*/false);
}

size_t ExpertScratchBytes(const ExpertShape& shape, DType dtype) {
  return ExpertScratch(shape, dtype).bytes;
}

cudaError_t ExpertMlp(const Stream& stream, const ExpertMlpArgs& args, const void* const* up,
                      const void* const* down, bool batch_invariant) {
  SC_CHECK(!args.up.empty() && args.up.size() <= kMaxExperts &&
           args.down.size() == args.up.size() && args.x.dtype == args.down.front().dtype);
  if (args.n_tokens == 0) return cudaSuccess;
  if (!batch_invariant && SuitFewTokens(args)) {
    const ExpertCall call(args);
    return FewTokensExpertMlp(stream, args, up, down, call.At<void>(call.layout.activation));
  }
  const auto table = [&](ExpertProduct product) {
    return product == ExpertProduct::kUp ? up : down;
  };
  // For a model always one of the two, whatever the number of rows: they round differently.
  if (SuitTiles(stream, args, args.up, args.down)) {
    const auto multiply = [&](ExpertProduct product, HopperGroupedArgs gemm) {
      gemm.maps = ExpertTableMaps(table(product), args.up.size());
      return HopperGroupedGemm(stream, gemm);
    };
    return ExpertMlpOfTiles(stream, args, GroupedProducts(args, multiply));
  }
  return ExpertMlpOfGroups(stream, args, [&](ExpertProduct product, GroupedGemmArgs gemm) {
    gemm.weights = table(product);
    return GroupedGemm(stream, gemm);
  });
}

}  // namespace stagecoach::kernels::cuda
