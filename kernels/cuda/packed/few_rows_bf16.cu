#include "kernels/cuda/packed/few_rows.inl"

namespace stagecoach::kernels::cuda {

cudaError_t FewRowsBF16(const Stream& stream, const FusedProduct& fused) {
  return FewRows<BF16>(stream, fused);
}

cudaError_t GroupedFewRowsBF16(const Stream& stream, const GroupedPackedArgs& args) {
  return GroupedFewRows<BF16>(stream, args);
}

}  // namespace stagecoach::kernels::cuda
