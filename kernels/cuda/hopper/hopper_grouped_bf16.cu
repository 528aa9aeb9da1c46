#include "kernels/cuda/hopper/hopper_grouped_ways.inl"

namespace stagecoach::kernels::cuda {

template cudaError_t RunHopperGrouped<BF16>(const Stream& stream, const HopperGroupedArgs& args);

}  // namespace stagecoach::kernels::cuda
