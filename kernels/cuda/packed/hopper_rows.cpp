#include "kernels/cuda/packed/hopper_rows.h"

namespace stagecoach::kernels::cuda {

bool SuitsHopperRows(const Stream& stream, const PackedPart& part) {
  return stream.is_hopper && part.cols % kBlockCols == 0;
}

int32_t MostHopperRows(const PackedPart& part) { return Is8Bit(part.form) ? 256 : 512; }

HopperRowsWay ChooseHopperRows(int32_t n_rows) {
  return {.tile_rows = n_rows <= 32 ? 32 : n_rows <= 64 ? 64 : 128};
}

}  // namespace stagecoach::kernels::cuda
