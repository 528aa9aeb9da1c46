#include "kernels/cuda/packed/one_row.inl"

namespace stagecoach::kernels::cuda {

cudaError_t OneRowBF16(const Stream& stream, const FusedProduct& fused) {
  return OneRow<BF16>(stream, fused);
}

}  // namespace stagecoach::kernels::cuda
