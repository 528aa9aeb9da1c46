// Which half of L2 is near. Hopper's L2 is in two halves, each beside half of the memory and half
// of the multiprocessors. What comes from the far one crosses the chip: an H200 reads memory with
// 11% less energy where all of it is near, and under load its speed is a matter of energy. Memory
// changes sides every 4 KiB: within a page of 2 MiB by the parity of some bits of the address,
// between pages as they come. None of it is documented: it is found out by latencies, and where
// these don't fit, nothing is known and nothing changes but the energy.
//
// A. Demeure, "CUDA L2 Side Boost", 2025.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "common/kv_block.h"
#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

inline constexpr size_t kChunkBytes = 4096, kPageBytes = size_t{2} << 20;
inline constexpr int kPageChunks = static_cast<int>(kPageBytes / kChunkBytes);
// By their numbers, of which there may be more than multiprocessors.
inline constexpr int kMaxSidedMultiprocessors = 256;

struct L2Sides {
  // A bit each: the side whose memory is near.
  uint32_t multiprocessors[kMaxSidedMultiprocessors / 32] = {};
  // Of a chunk's number in its page, the bits whose parity is its side, or where the page's first
  // chunk is on side 1 the other one. The lowest is among them. 0: nothing is known.
  uint32_t chunk_mask = 0;

  bool known() const { return chunk_mask != 0; }
  __host__ __device__ int32_t SideOf(int32_t multiprocessor) const {
    if (multiprocessor >= kMaxSidedMultiprocessors) return 0;
    return static_cast<int32_t>(multiprocessors[multiprocessor / 32] >> multiprocessor % 32 & 1);
  }
};

// The KV cache's rows are of one block and KV head. Those of a chunk's neighbours are exchanged
// where it takes that for even chunks to be on side 0, so that the sides of heads are always the
// same.
struct KvSides {
  struct Place {
    const uint32_t* pages = nullptr;  // of the memory, a bit each: the side of its first chunk
    uint32_t first_chunk = 0;         // of the memory's chunks, that of the first row; even
  };
  Place k, v;               // no pages: nothing is exchanged
  uint32_t chunk_mask = 0;  // less the lowest bit
  int32_t chunk_rows_log2 = 0;
};

// The cache rows of a chunk, if the heads of every block can be kept apart so; else -1.
constexpr int32_t ChunkRowsLog2(DType dtype, int32_t n_kv_heads, int32_t head_dim) {
  const auto row_bytes =
      static_cast<int64_t>(DTypeBytes(dtype)) * kKvBlockTokens * int64_t{head_dim};
  for (int32_t log2 = 0; row_bytes << log2 <= static_cast<int64_t>(kChunkBytes); ++log2) {
    if (row_bytes << log2 == static_cast<int64_t>(kChunkBytes)) {
      return n_kv_heads % (2 << log2) == 0 ? log2 : -1;
    }
  }
  return -1;
}

// The KV head that is the index'th of a side's.
__host__ __device__ constexpr int32_t HeadOfSide(int32_t side, int32_t index,
                                                 int32_t chunk_rows_log2) {
  const int32_t chunk = (index >> chunk_rows_log2) * 2 + side;
  return chunk << chunk_rows_log2 | (index & ((1 << chunk_rows_log2) - 1));
}

}  // namespace stagecoach::kernels::cuda
