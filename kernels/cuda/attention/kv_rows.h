// Location of a row in the KV cache, and the SM id of the running thread.
#pragma once

#include "kernels/cuda/device/l2_sides.h"

namespace stagecoach::kernels::cuda {

// The row where cache row `cache_row` is stored. `place` is k or v of `sides`.
__device__ __forceinline__ int32_t CacheRowOf(const KvSides& sides, const KvSides::Place& place,
                                              int32_t cache_row) {
  if (place.pages == nullptr) return cache_row;
  const uint32_t chunk =
      place.first_chunk + (static_cast<uint32_t>(cache_row) >> sides.chunk_rows_log2);
  const uint32_t page = chunk / kPageChunks;
  const uint32_t side = static_cast<uint32_t>(__popc(chunk & sides.chunk_mask)) +
                        (__ldg(place.pages + page / 32) >> page % 32);
  return cache_row ^ static_cast<int32_t>((side & 1) << sides.chunk_rows_log2);
}

// The id of the SM that runs this thread.
__device__ __forceinline__ int32_t Multiprocessor() {
#if defined(__CUDA_ARCH__)
  uint32_t id;
  asm("mov.u32 %0, %%smid;" : "=r"(id));
  return static_cast<int32_t>(id);
#elif defined(STAGECOACH_EMULATED_CUDA)
  return blockIdx.x % 5 == 4 ? 1 : 0;  // unequal numbers of CTAs per partition, unlike the shares
#else
  return 0;
#endif
}

}  // namespace stagecoach::kernels::cuda
