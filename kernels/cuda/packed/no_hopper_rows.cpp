// Stubs for builds without Hopper's own instructions.
#include "kernels/cuda/packed/hopper_experts.h"
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

bool SuitsHopperExperts(const Stream&, const PackedPart&, bool) { return false; }

int32_t HopperExpertsTileRows(int32_t, int32_t) { return kHopperExpertsTileRows[0]; }

cudaError_t HopperExpertsBF16(const Stream&, const HopperExpertsArgs&) {
  return cudaErrorInvalidValue;
}

cudaError_t HopperExpertsF16(const Stream&, const HopperExpertsArgs&) {
  return cudaErrorInvalidValue;
}

}  // namespace stagecoach::kernels::cuda
