// L2 partitions and the SMs near them. The code calls a partition a side. Hopper's L2 has two
// partitions, each next to half of the memory and half of the SMs. Data from the far partition
// crosses the chip. An H200 reads memory with 11% less energy if all of it is near, and under load
// the power limit sets the speed. Memory changes the partition every 4 KiB. Within a 2 MiB page the
// partition follows the parity of some address bits; between pages there is no known rule. NVIDIA
// does not document this, so it is measured with latencies. If the latencies do not fit this model,
// the partitions are unknown, and only energy use changes.
//
// Source: A. Demeure, "CUDA L2 Side Boost", 2025.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "common/kv_block.h"
#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

inline constexpr size_t kChunkBytes = 4096, kPageBytes = size_t{2} << 20;
inline constexpr int kPageChunks = static_cast<int>(kPageBytes / kChunkBytes);
// Size of arrays that are indexed by SM id (%smid). Ids may exceed the number of SMs.
inline constexpr int kMaxSidedMultiprocessors = 256;

struct L2Sides {
  // One bit per SM id: the partition whose memory is near.
  uint32_t multiprocessors[kMaxSidedMultiprocessors / 32] = {};
  // Bits of a chunk's index in its page. Their parity gives the chunk's partition, relative to the
  // partition of the page's first chunk. Bit 0 is one of them. 0: unknown.
  uint32_t chunk_mask = 0;

  bool known() const { return chunk_mask != 0; }
  __host__ __device__ int32_t SideOf(int32_t multiprocessor) const {
    if (multiprocessor >= kMaxSidedMultiprocessors) return 0;
    return static_cast<int32_t>(multiprocessors[multiprocessor / 32] >> multiprocessor % 32 & 1);
  }
};

// Here a row of the KV cache is the data of one KV block and one KV head. Rows of two neighbouring
// chunks are swapped if the even chunk is not in partition 0. So the data of a head is always in
// the same partition.
struct KvSides {
  struct Place {
    // One bit per page of the memory: the partition of the page's first chunk.
    const uint32_t* pages = nullptr;
    uint32_t first_chunk = 0;  // chunk of the first row, counted from the start of the memory; even
  };
  Place k, v;               // pages == nullptr: no rows are swapped
  uint32_t chunk_mask = 0;  // L2Sides::chunk_mask without bit 0
  int32_t chunk_rows_log2 = 0;
};

// log2 of the cache rows per chunk, if the heads of every KV block split between the partitions;
// else -1.
constexpr int32_t ChunkRowsLog2(DType dtype, int32_t n_kv_heads, int32_t head_dim) {
  if (dtype == DType::kFp8) return -1;  // rows with scales do not divide chunks
  const auto row_bytes =
      static_cast<int64_t>(DTypeBytes(dtype)) * kKvBlockTokens * int64_t{head_dim};
  for (int32_t log2 = 0; row_bytes << log2 <= static_cast<int64_t>(kChunkBytes); ++log2) {
    if (row_bytes << log2 == static_cast<int64_t>(kChunkBytes)) {
      return n_kv_heads % (2 << log2) == 0 ? log2 : -1;
    }
  }
  return -1;
}

// The index'th KV head of a partition.
__host__ __device__ constexpr int32_t HeadOfSide(int32_t side, int32_t index,
                                                 int32_t chunk_rows_log2) {
  const int32_t chunk = (index >> chunk_rows_log2) * 2 + side;
  return chunk << chunk_rows_log2 | (index & ((1 << chunk_rows_log2) - 1));
}

}  // namespace stagecoach::kernels::cuda
