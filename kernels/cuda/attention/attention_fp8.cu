// The kernels of an FP8 cache.
#include "kernels/cuda/attention/attention_decode_kernel.h"
#include "kernels/cuda/attention/attention_decode_warp.h"
#include "kernels/cuda/attention/attention_prefill_kernel.h"

namespace stagecoach::kernels::cuda {

cudaError_t DecodeFp8Attention(const Stream& stream, const AttentionParams& params, DType dtype,
                               int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    return Decode<Fp8Cache<T, kDim>>(stream, params);
  });
}

// Only single warps: teams would need stages of codes beside those of numbers.
cudaError_t FixedDecodeFp8Attention(const Stream& stream, const AttentionParams& params,
                                    DType dtype, int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    return DecodeRowTiles(params.n_heads, params.n_kv_heads) == 1
               ? LaunchFixedWarps<Fp8Cache<T, kDim>, 1>(stream, params)
               : LaunchFixedWarps<Fp8Cache<T, kDim>, 2>(stream, params);
  });
}

cudaError_t PrefillFp8Attention(const Stream& stream, const AttentionParams& params, DType dtype,
                                int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    return Prefill<Fp8Cache<T, kDim>>(stream, params);
  });
}

}  // namespace stagecoach::kernels::cuda
