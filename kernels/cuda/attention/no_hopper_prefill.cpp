// Stubs for builds without FlashInfer.
#include "kernels/cuda/attention/hopper_packed_prefill.h"
#include "kernels/cuda/attention/hopper_prefill.h"

namespace stagecoach::kernels::cuda {

int32_t HopperTileRows(DType, int32_t, bool) { return 0; }

cudaError_t HopperPrefill(const Stream&, const AttentionArgs&, const HopperPlan&,
                          const GatheredKeys&, const KvSides&) {
  return cudaErrorInvalidValue;
}

bool HasHopperPackedPrefill(DType, int32_t) { return false; }

cudaError_t HopperPackedPrefill(const Stream&, const AttentionParams&, DType, int32_t) {
  return cudaErrorInvalidValue;
}

}  // namespace stagecoach::kernels::cuda
