// How the kernels for up to 16 rows of x and packed weights read a matrix: a CTA takes tiles, its
// warps split the blocks of each tile, and each warp has its next blocks in shared memory.
#pragma once

#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/packed/few_rows.h"
#include "kernels/cuda/packed/packed_layout.h"

namespace stagecoach::kernels::cuda {

// Tiles of a CTA: every stride-th one, or every stride-th pair of one with gates and one with what
// they gate.
struct TileOrder {
  int n_tiles, stride;
  int half;  // of the tiles; 0: no gates

  __device__ __forceinline__ int After(int tile) const {
    if (half == 0) return tile + stride;
    if (tile < half) return tile + half;
    const int next = tile - half + stride;
    return next < half ? next : n_tiles;
  }
};

// Blocks of a warp: every kRingWarps-th one of each of its CTA's tiles.
struct WarpBlocks {
  int n_blocks;
  TileOrder order;
  int tile, block;

  // A warp without blocks has no tiles.
  __device__ __forceinline__ WarpBlocks(int n_blocks, const TileOrder& order, int first_tile,
                                        int warp)
      : n_blocks(n_blocks),
        order(order),
        tile(warp < n_blocks ? first_tile : order.n_tiles),
        block(warp) {}
  __device__ __forceinline__ bool at_end() const { return tile >= order.n_tiles; }
  __device__ __forceinline__ void Next() {
    block += kRingWarps;
    if (block >= n_blocks) {
      block %= kRingWarps;
      tile = order.After(tile);
    }
  }
};

// Copies kN times 16 bytes per lane, a warp's 512 bytes apart, as far as they begin before `bytes`.
#ifdef __CUDA_ARCH__
// `to` is an address in shared memory. Offsets are part of the instructions.
template <int kN, int kFirst = 0>
__device__ __forceinline__ void CopyPieces(unsigned to, const unsigned char* from, int bytes) {
  if (kFirst * 512 < bytes) {
    asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %2], 16;" ::"r"(to), "l"(from),
                 "n"(kFirst * 512)
                 : "memory");
  }
  if constexpr (kFirst + 1 < kN) CopyPieces<kN, kFirst + 1>(to, from, bytes);
}
#endif
template <int kN>
__device__ __forceinline__ void CopyPieces(unsigned char* to, const unsigned char* from,
                                           int bytes) {
#ifdef __CUDA_ARCH__
  CopyPieces<kN>(static_cast<unsigned>(__cvta_generic_to_shared(to)), from, bytes);
#else
  for (int i = 0; i < kN; ++i) {
    if (i * 512 < bytes) CopyAsync16(to + i * 512, from + i * 512, true);
  }
#endif
}

// Ring of a warp's next blocks in shared memory (cp.async). Each warp has its own ring, so that
// warps do not wait for each other.
template <PackedForm kForm>
struct BlockRing {
  static constexpr int kUnitBytes = UnitBytes(kForm);
  const unsigned char* tiles;
  int64_t tile_bytes;
  int n_units, header_bytes, block_bytes;
  WarpBlocks next;  // to fetch
  unsigned char* memory;
  int lane, n_stages;
  int stage = 0;  // the oldest block

  // Replaces the oldest block, which the whole warp has read.
  __device__ __forceinline__ void Fetch() {
    constexpr int kMostCopies =
        (kMostHeaderBytes + kBlockUnits * kUnitBytes) / (16 * kWarpThreads) + 1;
    __syncwarp();
    if (!next.at_end()) {
      const int n = min(kBlockUnits, n_units - next.block * kBlockUnits);
      const int bytes = header_bytes + n * kUnitBytes;
      const unsigned char* const from = tiles + next.tile * tile_bytes + next.block * block_bytes;
      unsigned char* const to = memory + stage * block_bytes;
      CopyPieces<kMostCopies>(to + 16 * lane, from + 16 * lane, bytes - 16 * lane);
      next.Next();
    }
    CommitCopies();
    stage = stage + 1 == n_stages ? 0 : stage + 1;
  }
  // The oldest block.
  __device__ __forceinline__ const unsigned char* Wait() const {
    if (n_stages == kMostRingStages) {
      WaitForCopies<kMostRingStages - 1>();
    } else {
      WaitForCopies<kLeastRingStages - 1>();
    }
    __syncwarp();
    return memory + stage * block_bytes;
  }
};

}  // namespace stagecoach::kernels::cuda
