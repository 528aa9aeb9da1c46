#include "kernels/cuda/hopper/hopper_fp8_ways.inl"

namespace stagecoach::kernels::cuda {

template <>
std::span<const HopperGemmWay> Fp8WaysTo<float>() {
  return kFp8Ways<float>;
}

}  // namespace stagecoach::kernels::cuda
