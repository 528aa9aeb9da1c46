// How a KV cache stores the heads of its blocks, for kernels that use tensor cores.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/fp8_rows.h"

namespace stagecoach::kernels::cuda {

// Rows of 16-bit numbers.
template <typename Number, int kHeadDim>
struct PlainCache {
  using T = Number;  // of activations
  static constexpr int kDim = kHeadDim;
  static constexpr bool kIsFp8 = false;
  static constexpr int kHeadBytes = kBlockTokens * kDim * static_cast<int>(sizeof(T));
  using Keys = KeyBlock<kDim>;
  using Values = ValueBlock<kDim>;

  // head: of a block
  __device__ __forceinline__ static void Load(const unsigned char* head, Keys& keys) {
    const T* const from = reinterpret_cast<const T*>(head);
    keys.rows[0].Load(GlobalRow<T>{from + KeyRow(0) * kDim});
    keys.rows[1].Load(GlobalRow<T>{from + KeyRow(1) * kDim});
  }
  __device__ __forceinline__ static void Load(const unsigned char* head, Values& values) {
    const T* const from = reinterpret_cast<const T*>(head);
    values.Load([from](int i) { return GlobalRow<T>{from + ValueRow(i) * kDim}; });
  }
};

template <typename Number, int kHeadDim>
struct Fp8Cache {
  using T = Number;
  static constexpr int kDim = kHeadDim;
  static constexpr bool kIsFp8 = true;
  static constexpr int kHeadBytes = static_cast<int>(KvFp8HeadBytes(kDim));
  using Keys = Fp8KeyBlock<T, kDim>;
  using Values = Fp8ValueBlock<T, kDim>;

  template <typename Rows>
  __device__ __forceinline__ static void Load(const unsigned char* head, Rows& rows) {
    rows.Load(head);
  }
};

// The head in cache row `cache_row` (see KvSides). cache: k or v
template <typename Cache>
__device__ __forceinline__ const unsigned char* HeadAt(const void* cache, int32_t cache_row) {
  return static_cast<const unsigned char*>(cache) + int64_t{cache_row} * Cache::kHeadBytes;
}

}  // namespace stagecoach::kernels::cuda
