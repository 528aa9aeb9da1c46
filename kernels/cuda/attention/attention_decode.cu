#include "kernels/cuda/attention/attention_decode_kernel.h"

namespace stagecoach::kernels::cuda {

cudaError_t DecodeAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                            int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    return Decode<PlainCache<T, kDim>>(stream, params);
  });
}

}  // namespace stagecoach::kernels::cuda
