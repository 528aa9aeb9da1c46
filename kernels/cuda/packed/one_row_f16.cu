#include "kernels/cuda/packed/one_row.inl"

namespace stagecoach::kernels::cuda {

cudaError_t OneRowF16(const Stream& stream, const FusedProduct& fused) {
  return OneRow<F16>(stream, fused);
}

}  // namespace stagecoach::kernels::cuda
