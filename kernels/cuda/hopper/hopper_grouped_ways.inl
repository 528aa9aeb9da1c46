// The kernels of one dtype, and their launch.
#include <algorithm>

#include "kernels/cuda/hopper/hopper_grouped_kernel.h"
#include "kernels/cuda/hopper/hopper_grouped_ways.h"
#include "kernels/cuda/hopper/tensor_map.h"

namespace stagecoach::kernels::cuda {
namespace {

template <typename T, TileShape kShape, int kBeside = 1>
cudaError_t RunGroupedTile(const Stream& stream, const HopperGroupedArgs& args) {
  using Tile = GemmTile<kShape>;
  const int32_t n_outputs = Tile::kGated ? args.rows / 2 : args.rows;
  HopperGroupedParams params{.x = {},
                             .w = static_cast<const CUtensorMap*>(args.maps),
                             .tiles = args.tiles,
                             .n_tiles = args.n_tiles,
                             .y = args.y.data,
                             .n_outputs = n_outputs,
                             .cols = args.cols,
                             .tile_rows = args.tile_rows,
                             .stage_bytes = Tile::StageBytes(args.tile_rows),
                             .n_stages = Tile::Stages(args.tile_rows),
                             .activation = args.kind};
  const cudaError_t error = MakeTensorMap(args.x, {1, args.n_rows, args.cols},
                                          {.rows = args.tile_rows / kBeside}, &params.x);
  if (error != cudaSuccess) return error;
  const int64_t most_units = args.max_tiles * CeilDiv(n_outputs, Tile::kOutputs * kBeside);
  const int64_t n_clusters =
      std::min<int64_t>(most_units, std::max(1, stream.n_multiprocessors / kBeside));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_clusters * kBeside)),
                          .block = Tile::kThreads,
                          .shared_bytes = Tile::kMostBytes};
  return Launch<&HopperGroupedKernel<T, Tile, kBeside>>(stream, shape, params);
}

template <typename T, bool kGated>
cudaError_t RunGrouped(const Stream& stream, const HopperGroupedArgs& args) {
  if (args.tile_rows > kWarpgroupRows) {
    return RunGroupedTile<T, TileShape{.warpgroups = 2, .weights = 256, .gated = kGated}, 2>(stream,
                                                                                             args);
  }
  if (args.tile_rows >= 32) {
    return RunGroupedTile<T, TileShape{.warpgroups = 1, .weights = 256, .gated = kGated}>(stream,
                                                                                          args);
  }
  return RunGroupedTile<T, TileShape{.warpgroups = 1, .weights = 128, .gated = kGated}>(stream,
                                                                                        args);
}

}  // namespace

template <typename T>
cudaError_t RunHopperGrouped(const Stream& stream, const HopperGroupedArgs& args) {
  return args.gated ? RunGrouped<T, true>(stream, args) : RunGrouped<T, false>(stream, args);
}

}  // namespace stagecoach::kernels::cuda
