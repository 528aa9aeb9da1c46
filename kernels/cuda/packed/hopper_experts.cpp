#include "kernels/cuda/packed/hopper_experts.h"

#include "kernels/cuda/hopper/tensor_map.h"

namespace stagecoach::kernels::cuda {

bool SuitsHopperExperts(const Stream& stream, const PackedPart& part, bool gated) {
  // Activations are stored in whole chunks, and other results 8 outputs at a time.
  return stream.is_hopper && part.order == nullptr && part.cols % kSlab == 0 &&
         part.block_bytes() <= kMostExpertsBlockBytes &&
         part.rows % (gated ? 2 * kChunkCols : 8) == 0;
}

int32_t HopperExpertsTileRows(int32_t n_rows, int32_t n_matrices) {
  // Few matrices should have more rows than a tile.
  const int32_t of_matrix = n_rows / n_matrices;
  return of_matrix <= 8 ? 16 : of_matrix <= 32 ? 64 : 128;
}

}  // namespace stagecoach::kernels::cuda
