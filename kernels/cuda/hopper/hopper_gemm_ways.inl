// The kernels of one dtype, and their launch.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/hopper/hopper_gemm_kernel.h"
#include "kernels/cuda/hopper/hopper_gemm_ways.h"
#include "kernels/cuda/hopper/tensor_map.h"

namespace stagecoach::kernels::cuda {
namespace {

template <typename T, typename O, typename Tile>
cudaError_t RunTile(const Stream& stream, const HopperGemmCall& call) {
  const GemmArgs& gemm = *call.gemm;
  const int32_t n_outputs = Tile::kGated ? gemm.w->rows / 2 : gemm.w->rows;
  const int box_rows = std::min<int32_t>(Tile::kRows, (gemm.n_rows + 7) / 8 * 8);
  HopperGemmParams params{.x = {},
                          .w = {},
                          .bias = gemm.bias,
                          .y = call.out.data,
                          .n_rows = gemm.n_rows,
                          .n_outputs = n_outputs,
                          .cols = gemm.w->cols,
                          .box_rows = box_rows,
                          .stage_bytes = Tile::StageBytes(box_rows),
                          .n_stages = Tile::Stages(box_rows),
                          .add_to_y = gemm.add_to_y,
                          .activation = call.activation};
  constexpr DType kDType = std::is_same_v<T, BF16> ? DType::kBF16 : DType::kF16;
  cudaError_t error = MakeTensorMap({gemm.x.data, kDType}, {1, gemm.n_rows, gemm.w->cols},
                                    {.rows = box_rows, .slabs = Tile::kSlabs}, &params.x);
  if (error != cudaSuccess) return error;
  error = MakeTensorMap({gemm.w->buffer.data.get(), kDType},
                        {Tile::kGated ? 2 : 1, n_outputs, gemm.w->cols},
                        {.rows = Tile::kOutputs,
                         .slabs = Tile::kSlabs,
                         .parts = Tile::kGated && Tile::kBelow == 1 ? 2 : 1},
                        &params.w);
  if (error != cudaSuccess) return error;
  const int n_units = TileOrder<Tile>(gemm.n_rows, n_outputs).n_units();
  const int n_clusters =
      Tile::kParts > 1 ? n_units
                       : std::min(n_units, std::max(1, stream.n_multiprocessors / Tile::kBlocks));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_clusters * Tile::kBlocks)),
                          .block = Tile::kThreads,
                          .shared_bytes = Tile::kMostBytes};
  return Launch<&HopperGemmKernel<T, O, Tile>>(stream, shape, params);
}

template <typename T, typename O, TileShape kShape>
constexpr HopperGemmWay WayOf() {
  using Tile = GemmTile<kShape>;
  return {.n_rows = Tile::kRows,
          .n_outputs = Tile::kOutputs,
          .n_weights = Tile::kWeights,
          .n_blocks = Tile::kBlocks,
          .n_below = Tile::kBelow,
          .n_parts = Tile::kParts,
          .run = &RunTile<T, O, Tile>};
}

// Split-K shapes: with 128 and 192 outputs, matrices of 4096 and 6144 rows make 128 CTAs for 256
// rows of x. For 128 rows of x, 64 outputs make 128 CTAs of 4096 rows, and 128 outputs make 96 CTAs
// of 6144 rows. With the tiles of 32, 48 and 112 outputs, the matrices of a layer make about as
// many tiles as there are SMs: 128 for 4096, 6144 and 14336 outputs.
template <typename T, typename O>
constexpr HopperGemmWay kWays[] = {
    WayOf<T, O, TileShape{.warpgroups = 2, .weights = 256}>(),
    WayOf<T, O, TileShape{.warpgroups = 2, .weights = 128}>(),
    WayOf<T, O, TileShape{.warpgroups = 1, .weights = 64, .slabs = 2}>(),
    WayOf<T, O, TileShape{.warpgroups = 1, .weights = 48, .slabs = 2}>(),
    WayOf<T, O, TileShape{.warpgroups = 1, .weights = 32, .slabs = 2}>(),
    WayOf<T, O, TileShape{.warpgroups = 2, .weights = 64, .parts = 2}>(),
    WayOf<T, O, TileShape{.warpgroups = 2, .weights = 128, .parts = 2}>(),
    WayOf<T, O, TileShape{.warpgroups = 2, .weights = 192, .parts = 2}>(),
};

template <typename T>
constexpr HopperGemmWay kGatedWays[] = {
    WayOf<T, T, TileShape{.warpgroups = 2, .weights = 256, .gated = true, .below = 2}>(),
    WayOf<T, T, TileShape{.warpgroups = 2, .weights = 256, .gated = true}>(),
    WayOf<T, T, TileShape{.warpgroups = 2, .weights = 224, .gated = true, .below = 2}>(),
    WayOf<T, T, TileShape{.warpgroups = 2, .weights = 224, .gated = true}>(),
    WayOf<T, T, TileShape{.warpgroups = 1, .weights = 224, .gated = true}>(),
};

}  // namespace

template <typename T>
std::span<const HopperGemmWay> HopperWays(DType y) {
  if (y == DType::kF32) return kWays<T, float>;
  return kWays<T, T>;
}

template <typename T>
std::span<const HopperGemmWay> HopperGatedWays() {
  return kGatedWays<T>;
}

}  // namespace stagecoach::kernels::cuda
