// Stubs for builds without FlashInfer.
#include "kernels/cuda/hopper/hopper_gemm.h"
#include "kernels/cuda/hopper/hopper_packed_prefill.h"
#include "kernels/cuda/hopper/hopper_prefill.h"

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

std::vector<int> HopperGemmWays(const Stream&, const GemmArgs&, Additions) { return {}; }

int32_t NHopperGemmWays(const GemmArgs&) { return 0; }

Additions HopperGemmAdditions(const GemmArgs&, int) { return Additions::kInOrder; }

cudaError_t HopperGemm(const Stream&, const GemmArgs&, int) { return cudaErrorInvalidValue; }

std::vector<int> HopperGatedGemmWays(const Stream&, const GemmArgs&, const ActivationArgs&) {
  return {};
}

int32_t NHopperGatedGemmWays(const GemmArgs&) { return 0; }

cudaError_t HopperGatedGemm(const Stream&, const GemmArgs&, const ActivationArgs&, int) {
  return cudaErrorInvalidValue;
}

}  // namespace stagecoach::kernels::cuda
