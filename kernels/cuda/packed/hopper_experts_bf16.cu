#include "kernels/cuda/packed/hopper_experts.inl"

namespace stagecoach::kernels::cuda {

cudaError_t HopperExpertsBF16(const Stream& stream, const HopperExpertsArgs& args) {
  return HopperExperts<BF16>(stream, args);
}

}  // namespace stagecoach::kernels::cuda
