// The kernels of hopper_fp8.h, and their launch.
#include <algorithm>

#include "kernels/cuda/hopper/hopper_gemm_kernel.h"
#include "kernels/cuda/hopper/hopper_gemm_ways.h"
#include "kernels/cuda/hopper/tensor_map.h"

namespace stagecoach::kernels::cuda {
namespace {

template <typename O, typename Tile>
cudaError_t RunFp8Tile(const Stream& stream, const HopperGemmCall& call) {
  const Fp8GemmArgs& args = *call.fp8;
  const int32_t n_outputs = Tile::kGated ? args.w.rows / 2 : args.w.rows;
  const int32_t cols = args.w.cols / 2;  // pairs of codes
  const int box_rows = std::min<int32_t>(Tile::kRows, (args.n_rows + 7) / 8 * 8);
  HopperGemmParams params{.x = {},
                          .w = {},
                          .bias = nullptr,
                          .y = call.out.data,
                          .n_rows = args.n_rows,
                          .n_outputs = n_outputs,
                          .cols = cols,
                          .box_rows = box_rows,
                          .stage_bytes = Tile::StageBytes(box_rows),
                          .n_stages = Tile::Stages(box_rows),
                          .add_to_y = args.add_to_y,
                          .activation = call.activation,
                          .x_scales = args.x.scales,
                          .w_scales = args.w.scales};
  constexpr DType kPairs = DType::kBF16;  // any type of 16 bits
  cudaError_t error = MakeTensorMap({args.x.codes, kPairs}, {1, args.n_rows, cols},
                                    {.rows = box_rows, .slabs = Tile::kSlabs}, &params.x);
  if (error != cudaSuccess) return error;
  error = MakeTensorMap({args.w.codes, kPairs}, {Tile::kGated ? 2 : 1, n_outputs, cols},
                        {.rows = Tile::kOutputs,
                         .slabs = Tile::kSlabs,
                         .parts = Tile::kGated && Tile::kBelow == 1 ? 2 : 1},
                        &params.w);
  if (error != cudaSuccess) return error;
  const int n_units = TileOrder<Tile>(args.n_rows, n_outputs).n_units();
  const int n_clusters =
      Tile::kParts > 1 ? n_units
                       : std::min(n_units, std::max(1, stream.n_multiprocessors / Tile::kBlocks));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_clusters * Tile::kBlocks)),
                          .block = Tile::kThreads,
                          .shared_bytes = Tile::kMostBytes};
  return Launch<&HopperGemmKernel<Fp8, O, Tile>>(stream, shape, params);
}

template <typename O, TileShape kShape>
constexpr HopperGemmWay WayOf() {
  using Tile = GemmTile<kShape>;
  return {.n_rows = Tile::kRows,
          .n_outputs = Tile::kOutputs,
          .n_weights = Tile::kWeights,
          .n_blocks = Tile::kBlocks,
          .n_below = Tile::kBelow,
          .n_parts = Tile::kParts,
          .run = &RunFp8Tile<O, Tile>};
}

// Two sums per result take twice the registers, so tiles of two warpgroups have up to 128 outputs.
template <typename O>
constexpr HopperGemmWay kFp8Ways[] = {
    WayOf<O, TileShape{.warpgroups = 2, .weights = 128}>(),
    WayOf<O, TileShape{.warpgroups = 1, .weights = 64, .slabs = 2}>(),
    WayOf<O, TileShape{.warpgroups = 1, .weights = 48, .slabs = 2}>(),
    WayOf<O, TileShape{.warpgroups = 1, .weights = 32, .slabs = 2}>(),
    WayOf<O, TileShape{.warpgroups = 2, .weights = 64, .parts = 2}>(),
    WayOf<O, TileShape{.warpgroups = 2, .weights = 128, .parts = 2}>(),
};

}  // namespace
}  // namespace stagecoach::kernels::cuda
