#include "kernels/cuda/packed/hopper_experts.inl"

namespace stagecoach::kernels::cuda {

cudaError_t HopperExpertsF16(const Stream& stream, const HopperExpertsArgs& args) {
  return HopperExperts<F16>(stream, args);
}

}  // namespace stagecoach::kernels::cuda
