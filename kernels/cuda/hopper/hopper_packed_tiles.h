// Keys and values on their way from the cache to where wgmma takes them, for HopperPackedPrefill.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/kv_rows.h"
#include "kernels/cuda/hopper/hopper_packed_prefill.h"

namespace stagecoach::kernels::cuda::hopper_packed {

inline constexpr int kWarpgroups = 2, kWarpgroupThreads = 128, kWarpgroupRows = 64;
inline constexpr int kThreads = kWarpgroups * kWarpgroupThreads;
static_assert(kHopperPackedRows == kWarpgroups * kWarpgroupRows);
inline constexpr int kTileKeys = kKeyTile, kTileBlocks = kKeyTileBlocks;

// Keys and values are in matrices of 64 rows of 64 elements, as wgmma.h wants them: as many of each
// of a tile as it takes for kDim, in rings; what is too many of the values is zero. While a tile is
// weighed, the values of the one before are added.
inline constexpr int kMatrixRow = 128;
inline constexpr int kMatrix = 64 * kMatrixRow;  // bytes
inline constexpr int kKeyTiles = 3, kValueTiles = 4;
template <int kDim>
inline constexpr int kMatrices = (kDim + 63) / 64;
template <int kDim>
inline constexpr int kTile = kMatrices<kDim> * kMatrix;  // of keys, or of values
template <int kDim>
inline constexpr int kRings = (kKeyTiles + kValueTiles) * kTile<kDim>;
template <int kDim>
inline constexpr int kStateBytes = kHopperPackedRows * kDim * static_cast<int>(sizeof(float));
template <int kDim>
inline constexpr int kSharedBytes = kRings<kDim> + kStateBytes<kDim> + 1024;
static_assert(kSharedBytes<128> <= 227 << 10);

// Where 16 bytes of a row of a matrix are.
__device__ __forceinline__ uint32_t Swizzled(int row, int byte) {
  return static_cast<uint32_t>(row * kMatrixRow + (byte ^ (row % 8 * 16)));
}
// The n'th 8 bytes of a key. FactorRow's lane c gives the halves of its 16 bytes of 32
// elements to one product of 16 and to the next; the 16 elements that may remain are as they are.
template <int kDim>
__device__ __forceinline__ uint32_t FactorPlace(int row, int n) {
  if (n >= kDim / 32 * 8) {
    return static_cast<uint32_t>(n / 16 * kMatrix) + Swizzled(row, n % 16 / 2 * 16) +
           static_cast<uint32_t>(n % 2 * 8);
  }
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

// A lane's of a tile's blocks: its head's rows of the cache.
struct Entry {
  int32_t key_row, value_row;
};

// The tiles that an item's rows see, by all threads of its block.
template <int kDim>
struct TileRings {
  const AttentionParams& p;
  const int32_t* table;
  int32_t kv_head;
  int32_t first_block, last_key;  // that any row of the item sees
  uint32_t shared;                // keys, values

  __device__ __forceinline__ uint32_t KeysOf(int32_t index) const {
    return shared + static_cast<uint32_t>(index % kKeyTiles) * kTile<kDim>;
  }
  __device__ __forceinline__ uint32_t ValuesOf(int32_t index) const {
    return shared + static_cast<uint32_t>(kKeyTiles + index % kValueTiles) * kTile<kDim>;
  }

  __device__ __forceinline__ Entry EntryOf(int32_t index) const {
    const int32_t b = index * kTileBlocks + Thread() % kTileBlocks;
    const int32_t block = b >= first_block && b * kBlockTokens <= last_key ? table[b] : 0;
    const int32_t row = block * p.n_kv_heads + kv_head;
    return {CacheRowOf(p.sides, p.sides.k, row), CacheRowOf(p.sides, p.sides.v, row)};
  }
  // Brings a tile to its place: keys by 8 bytes, values by 16. Blocks that nobody sees, and tokens
  // after the last row's, become zero.
  __device__ __forceinline__ void Fetch(int32_t index, const Entry& entry) const {
    if (index <= last_key / kTileKeys) {
      FetchRows<8>(index, p.k, entry.key_row, KeysOf(index),
                   [](int row, int n) { return FactorPlace<kDim>(row, n); });
      FetchRows<16>(index, p.v, entry.value_row, ValuesOf(index), [](int row, int n) {
        return static_cast<uint32_t>(n / 8 * kMatrix) + Swizzled(row, n % 8 * 16);
      });
    }
    CommitCopies();
  }
  // place(row, n): of the n'th piece of a row.
  template <int kBytes, typename Place>
  __device__ __forceinline__ void FetchRows(int32_t index, const void* cache, int32_t entry,
                                            uint32_t to, const Place& place) const {
    constexpr int kPieces = kMatrices<kDim> * kMatrixRow / kBytes;
    constexpr int kRowsAtOnce = kThreads / kPieces;  // a multiple of 8, so that none changes places
    static_assert(kRowsAtOnce % 8 == 0 && (kRowsAtOnce <= kBlockTokens || kRowsAtOnce % 16 == 0));
    const int row = Thread() / kPieces, piece = Thread() % kPieces;
    to += place(row, piece);
    const bool is_there = piece * kBytes < kRowBytes;
    const auto* const from =
        static_cast<const unsigned char*>(cache) + (is_there ? piece * kBytes : 0);
#pragma unroll
    for (int first = 0; first < kTileKeys; first += kRowsAtOnce) {
      const int b =
          kRowsAtOnce <= kBlockTokens ? first / kBlockTokens : (first + row) / kBlockTokens;
      const int64_t cache_row = __shfl_sync(kAllLanes, entry, b);
      CopyAsync<kBytes>(
          to + static_cast<uint32_t>(first * kMatrixRow),
          from + (cache_row * kBlockTokens + (first + row) % kBlockTokens) * kRowBytes,
          is_there && index * kTileBlocks + b >= first_block &&
              index * kTileKeys + first + row <= last_key);
    }
  }
  static constexpr int kRowBytes = kDim * 2;
};

}  // namespace stagecoach::kernels::cuda::hopper_packed
