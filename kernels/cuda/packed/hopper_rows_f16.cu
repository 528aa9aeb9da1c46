#include "kernels/cuda/packed/hopper_rows.inl"

namespace stagecoach::kernels::cuda {

cudaError_t HopperRowsF16(const Stream& stream, const FusedProduct& fused,
                          const HopperRowsWay& way) {
  return HopperRows<F16>(stream, fused, way);
}

}  // namespace stagecoach::kernels::cuda
