// Keys and values on their way from the cache to where wgmma takes them, for HopperFixedPrefill.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/hopper/hopper_fixed_prefill.h"

namespace stagecoach::kernels::cuda::hopper_fixed {

inline constexpr int kDim = 128;
inline constexpr int kWarpgroups = 2, kWarpgroupThreads = 128, kWarpgroupRows = 64;
inline constexpr int kThreads = kWarpgroups * kWarpgroupThreads;
static_assert(kHopperFixedRows == kWarpgroups * kWarpgroupRows);
inline constexpr int kTileKeys = 64, kTileBlocks = kTileKeys / kBlockTokens;

// Keys and values are in matrices of 64 rows of 64 elements, as wgmma.h wants them: two of each of
// a tile, in rings. While a tile is weighed, the values of the one before are added.
inline constexpr int kMatrixRow = 128;
inline constexpr int kMatrix = 64 * kMatrixRow;  // bytes
inline constexpr int kTile = 2 * kMatrix;        // of keys, or of values
inline constexpr int kKeyTiles = 3, kValueTiles = 4;
inline constexpr int kStateBytes = kHopperFixedRows * kDim * static_cast<int>(sizeof(float));
inline constexpr int kSharedBytes = (kKeyTiles + kValueTiles) * kTile + kStateBytes + 1024;
static_assert(kSharedBytes <= 227 << 10);

// Where 16 bytes of a row of a matrix are.
__device__ __forceinline__ uint32_t Swizzled(int row, int byte) {
  return static_cast<uint32_t>(row * kMatrixRow + (byte ^ (row % 8 * 16)));
}
// The n'th 8 bytes of a key. FactorRow's lane c gives the halves of its 16 bytes of 32
// elements to one product of 16 and to the next.
__device__ __forceinline__ uint32_t FactorPlace(int row, int n) {
  const int step = n / 8 * 2 + n % 2, c = n % 8 / 2;
  return static_cast<uint32_t>(step / 4 * kMatrix) + Swizzled(row, step % 4 * 32 + c / 2 * 16) +
         static_cast<uint32_t>(c % 2 * 8);
}

// As CopyAsync16.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(uint32_t to, const unsigned char* from, bool wanted) {
  static_assert(kBytes == 8 || kBytes == 16);
  const int n = wanted ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(n)
                 : "memory");
  }
}

__device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }

// The tiles that an item's rows see, by all threads of its block.
struct TileRings {
  const AttentionParams& p;
  const int32_t* table;
  int32_t kv_head;
  int32_t first_block, last_key;  // that any row of the item sees
  uint32_t shared;                // keys, values

  __device__ __forceinline__ uint32_t KeysOf(int32_t index) const {
    return shared + static_cast<uint32_t>(index % kKeyTiles) * kTile;
  }
  __device__ __forceinline__ uint32_t ValuesOf(int32_t index) const {
    return shared + static_cast<uint32_t>(kKeyTiles + index % kValueTiles) * kTile;
  }

  // A lane's of the tile's blocks in the table.
  __device__ __forceinline__ int32_t EntryOf(int32_t index) const {
    const int32_t b = index * kTileBlocks + Thread() % kTileBlocks;
    return b >= first_block && b * kBlockTokens <= last_key ? table[b] : 0;
  }
  // Brings a tile to its place: keys by 8 bytes, values by 16. Blocks that nobody sees, and tokens
  // after the last row's, become zero.
  __device__ __forceinline__ void Fetch(int32_t index, int32_t entry) const {
    if (index <= last_key / kTileKeys) {
      FetchKeys(index, entry);
      FetchValues(index, entry);
    }
    CommitCopies();
  }
  __device__ __forceinline__ void FetchKeys(int32_t index, int32_t entry) const {
    const int row = Thread() / 32;  // and every 8th after
    const uint32_t to = KeysOf(index) + FactorPlace(row, Thread() % 32);
    const auto* const from = RowsOf(p.k, row) + Thread() % 32 * 8;
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      const auto* const block = from + __shfl_sync(kAllLanes, entry, b) * BlockBytes();
      const bool seen = index * kTileBlocks + b >= first_block;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int first = 16 * b + 8 * h;
        CopyAsync<8>(to + static_cast<uint32_t>(first * kMatrixRow), block + 8 * h * kRowBytes,
                     seen && index * kTileKeys + first + row <= last_key);
      }
    }
  }
  __device__ __forceinline__ void FetchValues(int32_t index, int32_t entry) const {
    const int row = Thread() / 16;  // and every 16th after
    const uint32_t to = ValuesOf(index) + static_cast<uint32_t>(Thread() % 16 / 8) * kMatrix +
                        Swizzled(row, Thread() % 8 * 16);
    const auto* const from = RowsOf(p.v, row) + Thread() % 16 * 16;
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      CopyAsync<16>(
          to + static_cast<uint32_t>(16 * b * kMatrixRow),
          from + __shfl_sync(kAllLanes, entry, b) * BlockBytes(),
          index * kTileBlocks + b >= first_block && index * kTileKeys + 16 * b + row <= last_key);
    }
  }
  static constexpr int kRowBytes = kDim * 2;
  __device__ __forceinline__ int64_t BlockBytes() const {
    return int64_t{p.n_kv_heads} * kBlockTokens * kRowBytes;
  }
  // The head's row of the first block.
  __device__ __forceinline__ const unsigned char* RowsOf(const void* cache, int row) const {
    return static_cast<const unsigned char*>(cache) +
           (int64_t{kv_head} * kBlockTokens + row) * kRowBytes;
  }
};

}  // namespace stagecoach::kernels::cuda::hopper_fixed
