#include "kernels/cuda/hopper/hopper_fp8_ways.inl"

namespace stagecoach::kernels::cuda {

template <>
std::span<const HopperGemmWay> Fp8WaysTo<BF16>() {
  return kFp8Ways<BF16>;
}

}  // namespace stagecoach::kernels::cuda
