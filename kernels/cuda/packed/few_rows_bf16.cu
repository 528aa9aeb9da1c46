#include "kernels/cuda/packed/few_rows.inl"

namespace stagecoach::kernels::cuda {

cudaError_t FewRowsBF16(const Stream& stream, const PackedProduct& product) {
  return FewRows<BF16>(stream, product);
}

}  // namespace stagecoach::kernels::cuda
