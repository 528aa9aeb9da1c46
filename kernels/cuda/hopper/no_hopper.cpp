// In builds without FlashInfer.
#include "kernels/cuda/hopper/hopper_prefill.h"

namespace stagecoach::kernels::cuda {

int32_t HopperTileRows(DType, int32_t, bool) { return 0; }

cudaError_t HopperPrefill(const Stream&, const AttentionArgs&, const HopperPlan&,
                          const GatheredKeys&) {
  return cudaErrorInvalidValue;
}

}  // namespace stagecoach::kernels::cuda
