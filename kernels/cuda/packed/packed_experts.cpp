#include "kernels/cuda/packed/packed_experts.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/experts/expert_mlp.h"
#include "kernels/cuda/experts/expert_rows.h"
#include "kernels/cuda/packed/expand.h"
#include "kernels/cuda/packed/hopper_experts.h"

namespace stagecoach::kernels::cuda {

// The matrices of one product.
struct PackedExperts::Weights {
  const void* const* table;  // their memory
  // The parts of the first matrix. There are none if the matrices are not packed, because their
  // number of inputs is no multiple of what packing needs.
  std::vector<PackedPlace> places;
  const unsigned char* first;  // the first one's memory
  int32_t rows, cols;

  int64_t TilesAt(const PackedPlace& place) const { return place.part.tiles - first; }
};

absl::StatusOr<PackedExperts::Weights> PackedExperts::WeightsOf(std::span<const Matrix> matrices,
                                                                DType dtype) {
  const Matrix& first = matrices.front();
  SC_CHECK(!first.parts.empty() || first.dtype == dtype);
  const bool are_alike = std::all_of(matrices.begin(), matrices.end(), [&](const Matrix& matrix) {
    return matrix.cols == first.cols &&
           std::equal(matrix.parts.begin(), matrix.parts.end(), first.parts.begin(),
                      first.parts.end(), [](const MatrixPart& a, const MatrixPart& b) {
                        return a.rows == b.rows && a.encoding == b.encoding;
                      });
  });
  if (!are_alike) {
    return absl::UnimplementedError(
        "the experts of a layer have weights in different formats; --dtype bfloat16 expands them");
  }
  SC_ASSIGN_OR_RETURN(const void* const* table, tables_->TableOf(matrices));
  return Weights{.table = table,
                 .places = PackedMatrices::PlacesOf(first),
                 .first = first.buffer.As<const unsigned char>(),
                 .rows = first.rows,
                 .cols = first.cols};
}

namespace {

cudaError_t MultiplyFewRows(const Stream& stream, const GroupedPackedArgs& args) {
  switch (args.gemm.dtype) {
    case DType::kBF16:
      return GroupedFewRowsBF16(stream, args);
    case DType::kF16:
      return GroupedFewRowsF16(stream, args);
    default:
      return GroupedPlainPackedProduct(stream, args);
  }
}

}  // namespace

cudaError_t PackedExperts::Multiply(const Weights& weights, GroupedGemmArgs gemm,
                                    int32_t most_rows) const {
  gemm.weights = weights.table;
  if (weights.places.empty()) return GroupedGemm(*stream_, gemm);
  for (const PackedPlace& place : weights.places) {
    const cudaError_t error = MultiplyFewRows(*stream_, {.gemm = gemm,
                                                         .w = place.part,
                                                         .tiles_at = weights.TilesAt(place),
                                                         .first_output = place.first_row,
                                                         .most_rows = most_rows});
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

absl::Status PackedExperts::Run(const ExpertMlpArgs& args) {
  SC_CHECK(!args.up.empty() && args.up.size() <= kMaxExperts && args.down.size() == args.up.size());
  if (args.n_tokens == 0) return absl::OkStatus();
  SC_ASSIGN_OR_RETURN(const Weights up, WeightsOf(args.up, args.x.dtype));
  SC_ASSIGN_OR_RETURN(const Weights down, WeightsOf(args.down, args.x.dtype));
  const int64_t n_pairs = int64_t{args.n_tokens} * args.n_used;
  const bool all_packed = !up.places.empty() && !down.places.empty();
  if (SuitPairs(args, up, down)) return RunPairs(args, up, down);
  if (!batch_invariant_ && SuitTiles(args, up, down)) return RunTiles(args, up, down);
  if (all_packed && !batch_invariant_ && args.x.dtype != DType::kF32 &&
      n_pairs > kMostPackedRowsOfExpert * static_cast<int64_t>(args.up.size())) {
    return RunExpanded(args, up, down);
  }
  const int32_t most_rows = std::min(args.n_tokens, kMaxSkinnyRows);
  return ToStatus(ExpertMlpOfGroups(*stream_, args,
                                    [&](ExpertProduct product, const GroupedGemmArgs& gemm) {
                                      return Multiply(product == ExpertProduct::kUp ? up : down,
                                                      gemm, most_rows);
                                    }),
                  "ExpertMlp");
}

bool PackedExperts::SuitPairs(const ExpertMlpArgs& args, const Weights& up, const Weights& down) {
  // Tiles of 16 outputs have gates only, or none. From two rows on, other ways are faster.
  return args.gated && args.n_tokens == 1 && args.x.dtype != DType::kF32 && up.places.size() == 1 &&
         down.places.size() == 1 && up.rows % (2 * kTileRows) == 0;
}

absl::Status PackedExperts::RunPairs(const ExpertMlpArgs& args, const Weights& up,
                                     const Weights& down) {
  const auto multiply = [&](ExpertProduct product, GroupedGemmArgs gemm) {
    const Weights& weights = product == ExpertProduct::kUp ? up : down;
    gemm.weights = weights.table;
    GroupedPackedArgs call{.gemm = gemm,
                           .w = weights.places[0].part,
                           .tiles_at = weights.TilesAt(weights.places[0]),
                           .first_output = 0,
                           .most_rows = 1,
                           .experts = args.experts};
    if (product == ExpertProduct::kUp) {
      call.is_gated = true;
      call.activation = args.kind;
      call.clamped = args.clamped;
      call.bias = args.up_bias;
    }
    return MultiplyFewRows(*stream_, call);
  };
  return ToStatus(ExpertMlpOfPairs(*stream_, args, multiply), "ExpertMlp");
}

bool PackedExperts::SuitTiles(const ExpertMlpArgs& args, const Weights& up,
                              const Weights& down) const {
  return args.gated && stream_->groups_gemms && args.x.dtype != DType::kF32 &&
         up.places.size() == 1 && down.places.size() == 1 &&
         SuitsHopperExperts(*stream_, up.places[0].part, /*gated=*/true) &&
         SuitsHopperExperts(*stream_, down.places[0].part, /*gated=*/false);
}

absl::Status PackedExperts::RunTiles(const ExpertMlpArgs& args, const Weights& up,
                                     const Weights& down) {
  const PackedPart &up_part = up.places[0].part, &down_part = down.places[0].part;
  const auto multiply = [&](ExpertProduct product, const HopperGroupedArgs& gemm) {
    const Weights& weights = product == ExpertProduct::kUp ? up : down;
    HopperExpertsArgs call{.gemm = gemm,
                           .w = weights.places[0].part,
                           .weights = weights.table,
                           .tiles_at = weights.TilesAt(weights.places[0])};
    if (product == ExpertProduct::kUp) {
      call.y_order = OrderOfLanes(down_part.form);
      call.clamped = args.clamped;
      call.bias = args.up_bias;
    }
    return args.x.dtype == DType::kBF16 ? HopperExpertsBF16(*stream_, call)
                                        : HopperExpertsF16(*stream_, call);
  };
  return ToStatus(
      ExpertMlpOfTiles(*stream_, args,
                       {.multiply = multiply,
                        .tile_rows = HopperExpertsTileRows(args.n_tokens * args.n_used,
                                                           static_cast<int32_t>(args.up.size())),
                        .activates = true,
                        .x_order = OrderOfLanes(up_part.form)}),
      "ExpertMlp");
}

namespace {

// Expanded matrices, one behind the other in `memory`.
std::vector<Matrix> ExpandedSlots(const Buffer& memory, DType dtype, int32_t n, int32_t rows,
                                  int32_t cols) {
  std::vector<Matrix> slots;
  const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(cols) * DTypeBytes(dtype);
  for (int32_t i = 0; i < n; ++i) {
    const std::shared_ptr<void> at(memory.data,
                                   memory.As<unsigned char>() + static_cast<size_t>(i) * bytes);
    slots.push_back({.buffer = {at, bytes}, .dtype = dtype, .rows = rows, .cols = cols});
  }
  return slots;
}

}  // namespace

absl::Status PackedExperts::RunExpanded(const ExpertMlpArgs& args, const Weights& up,
                                        const Weights& down) {
  const ExpertCall call(args);
  const int64_t up_bytes =
      int64_t{up.rows} * up.cols * static_cast<int64_t>(DTypeBytes(call.dtype));
  const int32_t n_together = ExpandedTogether(up_bytes, call.n_experts, most_expanded_bytes_);
  // Those of `down` are not larger.
  SC_ASSIGN_OR_RETURN(const Buffer memory,
                      matrices_->ExpandedMemory(static_cast<size_t>(n_together * up_bytes)));
  const auto slots_of = [&](const Weights& weights) {
    return ExpandedSlots(memory, call.dtype, n_together, weights.rows, weights.cols);
  };
  const std::vector<Matrix> up_slots = slots_of(up), down_slots = slots_of(down);
  SC_ASSIGN_OR_RETURN(const void* const* up_table, tables_->TableOf(up_slots));
  SC_ASSIGN_OR_RETURN(const void* const* down_table, tables_->TableOf(down_slots));

  // Each turn's groups, then its weights, then its product. The kernel that expands lets no other
  // start before its end, so products may read groups and weights as early as they like.
  const auto in_turns = [&](ExpertProduct product, SelectGroupsArgs select,
                            absl::FunctionRef<cudaError_t()> multiply) {
    const Weights& weights = product == ExpertProduct::kUp ? up : down;
    const int64_t elements = int64_t{weights.rows} * weights.cols;
    cudaError_t error = cudaSuccess;
    for (int32_t first = 0; first < call.n_experts && error == cudaSuccess; first += n_together) {
      select.first = first;
      select.n_matrices = std::min(n_together, call.n_experts - first);
      error = SelectGroups(*stream_, select);
      for (const PackedPlace& place : weights.places) {
        if (error != cudaSuccess) return error;
        const int64_t begin = int64_t{place.first_row} * weights.cols;
        error = ExpandMany(
            *stream_,
            {.part = place.part,
             .weights = weights.table + first,
             .tiles_at = weights.TilesAt(place),
             .n_matrices = select.n_matrices,
             .to = memory.As<unsigned char>() + static_cast<size_t>(begin) * DTypeBytes(call.dtype),
             .to_step = elements},
            call.dtype);
      }
      if (error == cudaSuccess) error = multiply();
    }
    return error;
  };
  const auto table = [&](ExpertProduct product) {
    return product == ExpertProduct::kUp ? up_table : down_table;
  };
  SelectGroupsArgs select{.groups = nullptr,
                          .tiles = nullptr,
                          .n_groups = nullptr,
                          .max_groups = static_cast<int32_t>(call.layout.max_groups),
                          .first = 0,
                          .n_matrices = 0,
                          .selected_groups = call.At<RowGroup>(call.layout.selected),
                          .selected_tiles = call.At<RowTile>(call.layout.selected),
                          .n_selected = call.At<int32_t>(call.layout.n_selected)};
  if (cuda::SuitTiles(*stream_, args, up_slots, down_slots)) {
    const auto multiply = [&](ExpertProduct product, HopperGroupedArgs gemm) {
      select.tiles = std::exchange(gemm.tiles, select.selected_tiles);
      select.n_groups = std::exchange(gemm.n_tiles, select.n_selected);
      gemm.maps = ExpertTableMaps(table(product), up_slots.size());
      return in_turns(product, select, [&] { return HopperGroupedGemm(*stream_, gemm); });
    };
    return ToStatus(ExpertMlpOfTiles(*stream_, args, GroupedProducts(args, multiply)), "ExpertMlp");
  }
  const auto multiply = [&](ExpertProduct product, GroupedGemmArgs gemm) {
    select.groups = std::exchange(gemm.groups, select.selected_groups);
    select.n_groups = std::exchange(gemm.n_groups, select.n_selected);
    gemm.weights = table(product);
    return in_turns(product, select, [&] { return GroupedGemm(*stream_, gemm); });
  };
  return ToStatus(ExpertMlpOfGroups(*stream_, args, multiply), "ExpertMlp");
}

}  // namespace stagecoach::kernels::cuda
