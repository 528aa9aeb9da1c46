#include "kernels/cuda/attention/attention_prefill_kernel.h"

namespace stagecoach::kernels::cuda {

cudaError_t PrefillAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                             int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    return Prefill<PlainCache<T, kDim>>(stream, params);
  });
}

}  // namespace stagecoach::kernels::cuda
