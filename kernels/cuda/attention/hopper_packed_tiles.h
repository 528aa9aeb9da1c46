// Copies of keys and values from the cache into the shared memory layout of wgmma, for
// HopperPackedPrefill.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/hopper_packed_prefill.h"
#include "kernels/cuda/attention/kv_rows.h"

namespace stagecoach::kernels::cuda::hopper_packed {

inline constexpr int kWarpgroups = 2, kWarpgroupThreads = 128, kWarpgroupRows = 64;
inline constexpr int kThreads = kWarpgroups * kWarpgroupThreads;
static_assert(kHopperPackedRows == kWarpgroups * kWarpgroupRows);
inline constexpr int kTileKeys = kKeyTile, kTileBlocks = kKeyTileBlocks;

// Keys and values are stored as matrices of 64 rows and 64 elements, in the layout of wgmma.h. A
// tile has ceil(kDim / 64) matrices of each, in rings; columns beyond kDim are zero. While the
// weights of one tile are computed, the values of the previous tile are added.
inline constexpr int kMatrixRow = 128;
inline constexpr int kMatrix = 64 * kMatrixRow;  // bytes
inline constexpr int kKeyTiles = 3, kValueTiles = 4;
template <int kDim>
inline constexpr int kMatrices = (kDim + 63) / 64;
template <int kDim>
inline constexpr int kTile = kMatrices<kDim> * kMatrix;  // bytes of a tile's keys, or of its values
template <int kDim>
inline constexpr int kRings = (kKeyTiles + kValueTiles) * kTile<kDim>;
template <int kDim>
inline constexpr int kStateBytes = kHopperPackedRows * kDim * static_cast<int>(sizeof(float));
template <int kDim>
inline constexpr int kSharedBytes = kRings<kDim> + kStateBytes<kDim> + 1024;
static_assert(kSharedBytes<128> <= 227 << 10);

// Offset of a 16-byte piece in a matrix with 128-byte swizzling.
__device__ __forceinline__ uint32_t Swizzled(int row, int byte) {
  return static_cast<uint32_t>(row * kMatrixRow + (byte ^ (row % 8 * 16)));
}
// Offset of the n'th 8 bytes of a key. The order of head elements is that of FactorRow: lane c has
// 16 bytes of each 32 elements, and its two halves go to consecutive MMAs of 16 elements. The last
// 16 elements, if kDim % 32 != 0, keep their order.
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

// See CopyAsync16.
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

// Per lane, for one KV block of a tile: the cache rows of the head's keys and values.
struct Entry {
  int32_t key_row, value_row;
};

// Rings of the tiles that an item's rows see. All threads of the CTA copy them.
template <int kDim>
struct TileRings {
  const AttentionParams& p;
  const int32_t* table;
  int32_t kv_head;
  int32_t first_block, last_key;  // range that any row of the item sees
  uint32_t shared;                // shared address: keys, then values

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
  // Starts the copies of a tile: keys in pieces of 8 bytes, values of 16. Blocks that no row sees
  // and tokens after last_key become zero.
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
  // place(row, n): offset of the n'th piece of a row.
  template <int kBytes, typename Place>
  __device__ __forceinline__ void FetchRows(int32_t index, const void* cache, int32_t entry,
                                            uint32_t to, const Place& place) const {
    constexpr int kPieces = kMatrices<kDim> * kMatrixRow / kBytes;
    constexpr int kRowsAtOnce = kThreads / kPieces;  // a multiple of 8: same swizzle
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
