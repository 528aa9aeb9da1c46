#include "kernels/cuda/packed/hopper_rows.inl"

namespace stagecoach::kernels::cuda {

cudaError_t HopperRowsBF16(const Stream& stream, const FusedProduct& fused,
                           const HopperRowsWay& way) {
  return HopperRows<BF16>(stream, fused, way);
}

}  // namespace stagecoach::kernels::cuda
