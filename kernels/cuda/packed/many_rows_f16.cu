#include "kernels/cuda/packed/many_rows.inl"

namespace stagecoach::kernels::cuda {

cudaError_t ManyRowsF16(const Stream& stream, const PackedProduct& product) {
  return ManyRows<F16>(stream, product);
}

}  // namespace stagecoach::kernels::cuda
