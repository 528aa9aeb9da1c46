#include "kernels/cuda/hopper/hopper_gemm_ways.inl"

namespace stagecoach::kernels::cuda {

template std::span<const HopperGemmWay> HopperWays<BF16>(DType y);
template std::span<const HopperGemmWay> HopperGatedWays<BF16>();

}  // namespace stagecoach::kernels::cuda
