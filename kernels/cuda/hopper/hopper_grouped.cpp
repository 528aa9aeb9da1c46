#include "kernels/cuda/hopper/hopper_grouped.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "common/check.h"
#include "kernels/cuda/hopper/hopper_grouped_ways.h"
#include "kernels/cuda/hopper/tensor_map.h"

namespace stagecoach::kernels::cuda {

static_assert(sizeof(CUtensorMap) == kTensorMapBytes);

bool HasHopperGrouped(const Stream& stream, std::span<const Matrix> matrices, bool gated) {
  if (!stream.is_hopper || matrices.empty()) return false;
  const Matrix& first = matrices.front();
  if (first.dtype == DType::kF32 || first.cols % kSlab != 0 || first.rows % (gated ? 16 : 8) != 0) {
    return false;
  }
  return std::all_of(matrices.begin(), matrices.end(), [&](const Matrix& matrix) {
    return matrix.parts.empty() && matrix.dtype == first.dtype && matrix.rows == first.rows &&
           matrix.cols == first.cols &&
           reinterpret_cast<uintptr_t>(matrix.buffer.data.get()) % 16 == 0;
  });
}

cudaError_t MakeMatrixMaps(std::span<const Matrix> matrices, unsigned char* maps) {
  for (const Matrix& matrix : matrices) {
    CUtensorMap map;
    const cudaError_t error =
        MakeTensorMap({matrix.buffer.data.get(), matrix.dtype}, {1, matrix.rows, matrix.cols},
                      {.rows = kMatrixBoxRows}, &map);
    if (error != cudaSuccess) return error;
    std::memcpy(maps, &map, sizeof(map));
    maps += kTensorMapBytes;
  }
  return cudaSuccess;
}

int32_t HopperGroupedTileRows(int32_t n_rows, int32_t n_matrices) {
  // Few matrices should have more rows than a tile.
  const int32_t of_matrix = n_rows / n_matrices;
  for (const int32_t rows : {16, 32, 64}) {
    if (2 * of_matrix <= rows) return rows;
  }
  return 128;
}

cudaError_t HopperGroupedGemm(const Stream& stream, const HopperGroupedArgs& args) {
  SC_CHECK(std::find(std::begin(kHopperGroupedTileRows), std::end(kHopperGroupedTileRows),
                     args.tile_rows) != std::end(kHopperGroupedTileRows));
  return args.x.dtype == DType::kBF16 ? RunHopperGrouped<BF16>(stream, args)
                                      : RunHopperGrouped<F16>(stream, args);
}

}  // namespace stagecoach::kernels::cuda
