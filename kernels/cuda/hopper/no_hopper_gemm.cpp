// Stubs for builds without FlashInfer.
#include "kernels/cuda/hopper/hopper_fp8.h"
#include "kernels/cuda/hopper/hopper_gemm.h"
#include "kernels/cuda/hopper/hopper_grouped.h"

namespace stagecoach::kernels::cuda {

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

std::vector<int> HopperFp8Ways(const Stream&, const Fp8GemmArgs&) { return {}; }

int32_t NHopperFp8Ways(const Fp8GemmArgs&) { return 0; }

cudaError_t HopperFp8(const Stream&, const Fp8GemmArgs&, int) { return cudaErrorInvalidValue; }

std::vector<int> HopperGatedFp8Ways(const Stream&, const Fp8GemmArgs&, const ActivationArgs&) {
  return {};
}

int32_t NHopperGatedFp8Ways() { return 0; }

cudaError_t HopperGatedFp8(const Stream&, const Fp8GemmArgs&, const ActivationArgs&, int) {
  return cudaErrorInvalidValue;
}

bool HasHopperGrouped(const Stream&, std::span<const Matrix>, bool) { return false; }

cudaError_t MakeMatrixMaps(std::span<const Matrix>, unsigned char*) {
  return cudaErrorInvalidValue;
}

int32_t HopperGroupedTileRows(int32_t, int32_t) { return kHopperGroupedTileRows[0]; }

cudaError_t HopperGroupedGemm(const Stream&, const HopperGroupedArgs&) {
  return cudaErrorInvalidValue;
}

}  // namespace stagecoach::kernels::cuda
