#include "kernels/cuda/hopper/hopper_gemm_ways.inl"

namespace stagecoach::kernels::cuda {

template std::span<const HopperGemmWay> HopperWays<F16>(DType y);
template std::span<const HopperGemmWay> HopperGatedWays<F16>();

}  // namespace stagecoach::kernels::cuda
