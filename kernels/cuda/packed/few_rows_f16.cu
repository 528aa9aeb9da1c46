#include "kernels/cuda/packed/few_rows.inl"

namespace stagecoach::kernels::cuda {

cudaError_t FewRowsF16(const Stream& stream, const FusedProduct& fused) {
  return FewRows<F16>(stream, fused);
}

cudaError_t GroupedFewRowsF16(const Stream& stream, const GroupedPackedArgs& args) {
  return GroupedFewRows<F16>(stream, args);
}

}  // namespace stagecoach::kernels::cuda
