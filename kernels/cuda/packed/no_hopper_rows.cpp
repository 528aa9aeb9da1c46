// Stubs for builds without Hopper's own instructions.
#include "kernels/cuda/packed/hopper_rows.h"

namespace stagecoach::kernels::cuda {

bool SuitsHopperRows(const Stream&, const PackedPart&) { return false; }

int32_t MostHopperRows(const PackedPart&) { return 0; }

HopperRowsWay ChooseHopperRows(int32_t) { return {}; }

cudaError_t HopperRowsBF16(const Stream&, const FusedProduct&, const HopperRowsWay&) {
  return cudaErrorInvalidValue;
}

cudaError_t HopperRowsF16(const Stream&, const FusedProduct&, const HopperRowsWay&) {
  return cudaErrorInvalidValue;
}

}  // namespace stagecoach::kernels::cuda
