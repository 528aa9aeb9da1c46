// Prefill: sequences of several rows. The CTA copies a few KV blocks at a time into shared memory
// while its warps work on the previous ones. Each warp has its own rows, as in FlashAttention-2 (T.
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023).
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/cache_type.h"
#include "kernels/cuda/attention/kv_rows.h"

namespace stagecoach::kernels::cuda {

// KV blocks per copy. Wide heads use fewer on GPUs that allow a CTA only 99 KB of shared memory
// (compute capability 8.6, 8.9 and 12.0). Blocks are accumulated one by one, so the results are the
// same.
inline constexpr int kUsualTileBlocks = kKeyTileBlocks, kFewerTileBlocks = 2;
inline constexpr size_t kLeastBlockSharedBytes = size_t{99} << 10;
inline constexpr int kStages = 2;

// Rows per warp, as many as registers hold: all of them share each read of keys from shared memory.
constexpr int RowTilesOf(int dim) { return dim <= 128 ? 3 : 2; }
constexpr int WarpsOf(int dim) { return kPrefillRows / (8 * RowTilesOf(dim)); }
static_assert(kPrefillRows % 48 == 0);

// Bytes per row in shared memory: a power of two, as SwappedKey and SwappedValue need.
constexpr int RowBytesOf(int dim) { return dim <= 64 ? 128 : dim <= 128 ? 256 : 512; }

template <int kDim>
struct SharedKeys {
  const unsigned char* block;
  __device__ __forceinline__ const unsigned char* At(int h, int byte) const {
    const int row = KeyRow(h);
    return block + row * RowBytesOf(kDim) + SwappedKey(row, byte);
  }
  __device__ __forceinline__ uint4 Wide(int h, int chunk) const {
    return *reinterpret_cast<const uint4*>(
        At(h, FactorByte(chunk, static_cast<int>(threadIdx.x) % 4)));
  }
  __device__ __forceinline__ uint2 Last(int h) const {
    return *reinterpret_cast<const uint2*>(
        At(h, LastFactorByte<kDim>(static_cast<int>(threadIdx.x) % 4)));
  }
};

template <int kDim>
struct SharedValues {
  const unsigned char* block;
  __device__ __forceinline__ const unsigned char* At(int i, int byte) const {
    const int row = ValueRow(i);
    return block + row * RowBytesOf(kDim) + SwappedValue(row, byte);
  }
  __device__ __forceinline__ static int G() {
    return static_cast<int>(threadIdx.x) % kWarpThreads / 4;
  }
  __device__ __forceinline__ uint4 Wide(int i, int part) const {
    return *reinterpret_cast<const uint4*>(At(i, ValueByte(part, G())));
  }
  __device__ __forceinline__ uint2 Last8(int i) const {
    return *reinterpret_cast<const uint2*>(At(i, LastValueByte<kDim>(G())));
  }
  __device__ __forceinline__ uint32_t Last4(int i) const {
    return *reinterpret_cast<const uint32_t*>(At(i, LastValueByte<kDim>(G())));
  }
};

template <typename Cache, int kTileBlocks>
struct PrefillBlock : PrefillItem {
  using T = typename Cache::T;
  static constexpr int kDim = Cache::kDim;
  static constexpr int kTileKeys = kTileBlocks * kBlockTokens;
  static constexpr int kRowTiles = RowTilesOf(kDim);
  static constexpr int kThreads = WarpsOf(kDim) * kWarpThreads;
  static constexpr int kHalfBytes = kTileKeys * RowBytesOf(kDim);  // the keys or the values
  // FP8 arrives as it is stored, in stages of its own, and becomes one tile of numbers.
  static constexpr int kTileBytes = 2 * kHalfBytes;
  static constexpr int kStageBytes =
      Cache::kIsFp8 ? 2 * kTileBlocks * Cache::kHeadBytes : kTileBytes;
  static constexpr size_t kSharedBytes = kStages * kStageBytes + (Cache::kIsFp8 ? kTileBytes : 0);
  using Tile = AttentionTile<T, kDim, kRowTiles>;

  const AttentionParams& p;
  unsigned char* shared;
  int32_t first_block, last_block;  // range that any row of the item sees

  // The head that holds block b of the sequence. cache: k or v
  __device__ __forceinline__ const unsigned char* StoredHead(const void* cache,
                                                             const KvSides::Place& place,
                                                             int32_t b) const {
    return HeadAt<Cache>(cache, CacheRowOf(p.sides, place, table[b] * p.n_kv_heads + kv_head));
  }

  // Starts the copy of key tile `index` into its stage. Blocks that no row sees and tokens after
  // last_key become zero.
  __device__ __forceinline__ void Fetch(int32_t index, int32_t last_key) const {
    unsigned char* const stage = shared + index % kStages * kStageBytes;
    if constexpr (Cache::kIsFp8) {
      FetchStored(index, last_key, stage);
    } else {
      FetchRows(index, last_key, stage);
    }
    CommitCopies();
  }

  __device__ __forceinline__ void FetchRows(int32_t index, int32_t last_key,
                                            unsigned char* stage) const {
    constexpr int kPieces = kDim / 8;  // 16-byte pieces per row
    for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * kPieces; i += kThreads) {
      const int row = i / kPieces, byte = i % kPieces * 16;
      const int32_t b = index * kTileBlocks + row / kBlockTokens;
      const bool wanted = b >= first_block && index * kTileKeys + row <= last_key;
      const int from = row % kBlockTokens * kDim * static_cast<int>(sizeof(T)) + byte;
      const unsigned char *k = nullptr, *v = nullptr;
      if (wanted) {
        k = StoredHead(p.k, p.sides.k, b) + from;
        v = StoredHead(p.v, p.sides.v, b) + from;
      }
      const int to = row * RowBytesOf(kDim);
      CopyAsync16(stage + to + SwappedKey(row % kBlockTokens, byte), k, wanted);
      CopyAsync16(stage + kHalfBytes + to + SwappedValue(row % kBlockTokens, byte), v, wanted);
    }
  }

  // FP8: the stage holds the heads of the keys, then those of the values.
  __device__ __forceinline__ void FetchStored(int32_t index, int32_t last_key,
                                              unsigned char* stage) const {
    constexpr int kPieces = Cache::kHeadBytes / 16;
    for (int i = static_cast<int>(threadIdx.x); i < kTileBlocks * kPieces; i += kThreads) {
      const int32_t b = index * kTileBlocks + i / kPieces;
      if (b < first_block || b * kBlockTokens > last_key) continue;
      const int byte = i % kPieces * 16;
      CopyAsync16(stage + i * 16, StoredHead(p.k, p.sides.k, b) + byte, true);
      CopyAsync16(stage + kTileBlocks * Cache::kHeadBytes + i * 16,
                  StoredHead(p.v, p.sides.v, b) + byte, true);
    }
  }

  // FP8: the numbers of a stage, as FetchRows leaves them.
  __device__ __forceinline__ void Expand(int32_t index, int32_t last_key,
                                         unsigned char* tile) const {
    constexpr int kPieces = kDim / 8;
    const unsigned char* const stage = shared + index % kStages * kStageBytes;
    for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * kPieces; i += kThreads) {
      const int row = i / kPieces, piece = i % kPieces, in_block = row % kBlockTokens;
      const int32_t b = index * kTileBlocks + row / kBlockTokens;
      const bool wanted = b >= first_block && index * kTileKeys + row <= last_key;
      const auto numbers = [&](bool is_v) {
        if (!wanted) return uint4{};
        const unsigned char* const head =
            stage + ((is_v ? kTileBlocks : 0) + row / kBlockTokens) * Cache::kHeadBytes;
        const unsigned char* const codes = head + in_block * kDim + KvFp8Place8(piece, kDim, is_v);
        return Fp8Numbers<T>(*reinterpret_cast<const uint2*>(codes),
                             Fp8Factor<T>(Fp8Scales<kDim>(head)[in_block]));
      };
      unsigned char* const to = tile + row * RowBytesOf(kDim);
      *reinterpret_cast<uint4*>(to + SwappedKey(in_block, piece * 16)) = numbers(false);
      *reinterpret_cast<uint4*>(to + kHalfBytes + SwappedValue(in_block, piece * 16)) =
          numbers(true);
    }
  }

  __device__ __forceinline__ void LoadQueries(int32_t warp_row, Tile& tile) const {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int32_t row = min(warp_row + 8 * n + g, n_rows - 1);
      tile.q[n].Load(GlobalRow<T>{RowOf<kDim>(static_cast<const T*>(p.qkv), row, p.n_in_row)});
    }
  }

  __device__ __forceinline__ void Run() {
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int c = static_cast<int>(threadIdx.x) % 4;
    const int32_t end_row = EndRow(kPrefillRows);
    const int32_t last_key = LastKey(end_row);
    first_block = FirstBlock(p.window);
    last_block = last_key / kBlockTokens;

    // Range of this warp's rows. A warp beyond the end has no rows but helps with the copies.
    const int32_t warp_row = part.first_row + warp * 8 * kRowTiles;
    const bool has_rows = warp_row < end_row;
    const int32_t earliest = PositionOf(min(warp_row, n_rows - 1));
    const int32_t latest = PositionOf(min(warp_row + 8 * kRowTiles, n_rows) - 1);
    const int32_t warp_first = max(p.window.First(earliest) / kBlockTokens, first_block);
    const int32_t warp_last = min(latest / kBlockTokens, last_block);
    int32_t positions[kRowTiles][2];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) positions[n][j] = PositionOf(warp_row + 8 * n + 2 * c + j);
    }
    // Fixed units: the merged state of the units before the current one.
    float* const state = p.memory.states + (int64_t{blockIdx.x} * WarpsOf(kDim) + warp) *
                                               (Tile::kStateFloats * kWarpThreads);
    bool has_state = false;

    Tile tile;
    tile.Clear();
    if (has_rows) LoadQueries(warp_row, tile);
    const int32_t first_tile = first_block / kTileBlocks, last_tile = last_block / kTileBlocks;
    Fetch(first_tile, last_key);
    for (int32_t index = first_tile; index <= last_tile; ++index) {
      if (index < last_tile) {
        Fetch(index + 1, last_key);
        WaitForCopies<1>();
      } else {
        WaitForCopies<0>();
      }
      __syncthreads();
      const unsigned char* tile_rows = shared + index % kStages * kStageBytes;
      if constexpr (Cache::kIsFp8) {
        unsigned char* const expanded = shared + kStages * kStageBytes;
        Expand(index, last_key, expanded);
        __syncthreads();
        tile_rows = expanded;
      }
      for (int b = 0; has_rows && b < kTileBlocks; ++b) {
        const int32_t block = index * kTileBlocks + b;
        if (block < warp_first || block > warp_last) continue;
        if (p.fixed_units && block % p.unit_blocks == 0 && block > warp_first) {
          if (part.keeps_units != 0) {
            tile.SumLanes();
            Leave(tile, StateOfUnit<kDim>(p, block / p.unit_blocks - 1), warp_row, end_row);
            tile.Clear();
          } else {
            EndUnit(tile, state, &has_state);
          }
        }
        const unsigned char* const rows = tile_rows + b * kBlockTokens * RowBytesOf(kDim);
        const int32_t first_key = block * kBlockTokens;
        float scores[kRowTiles][4];
        uint32_t weights[kRowTiles][2];
        tile.Scores(SharedKeys<kDim>{rows}, scores);
        const bool all_visible =
            first_key >= p.window.First(latest) && first_key + kBlockTokens - 1 <= earliest;
        tile.Weigh(
            p.scale, all_visible,
            [&](int h, int n, int j) {
              return p.window.Sees(positions[n][j], first_key + KeyRow(h));
            },
            scores, weights);
        tile.AddValues(SharedValues<kDim>{rows + kHalfBytes}, weights);
      }
      __syncthreads();
    }
    if (!has_rows) return;
    if (part.keeps_units != 0) {
      tile.SumLanes();
      const int32_t last_unit = warp_last / p.unit_blocks;
      if (warp_first <= warp_last) {
        Leave(tile, StateOfUnit<kDim>(p, last_unit), warp_row, end_row);
      }
      tile.Clear();
      ForUnseenStates<kDim>(p, warp_first / p.unit_blocks, warp_first <= warp_last ? last_unit : -1,
                            [&](const PartState<kDim>& to) { Leave(tile, to, warp_row, end_row); });
      return;
    }
    if (has_state) {
      EndUnit(tile, state, &has_state);
      tile.Load(state);
    } else {
      tile.SumLanes();
    }
    if (part.state >= 0) return Leave(tile, p.StateOf<kDim>(part.state), warp_row, end_row);
    tile.Write(
        [&](int r) {
          const int32_t row = warp_row + r;
          return row < end_row ? RowOf<kDim>(static_cast<T*>(p.out), row, p.n_heads) : nullptr;
        },
        [&](int r) { return p.sinks.ExponentOf(HeadOf(warp_row + r)); });
  }

  __device__ __forceinline__ void Leave(const Tile& tile, const PartState<kDim>& to,
                                        int32_t warp_row, int32_t end_row) const {
    tile.Leave([&](int r) { return warp_row + r < end_row ? warp_row + r - part.first_row : -1; },
               to);
  }

  __device__ __forceinline__ void EndUnit(Tile& tile, float* state, bool* has_state) const {
    tile.SumLanes();
    if (*has_state) {
      tile.MergeInto(state);
    } else {
      tile.Save(state);
    }
    *has_state = true;
    tile.Clear();
  }
};

template <typename Cache, int kTileBlocks>
__global__ void __launch_bounds__(PrefillBlock<Cache, kTileBlocks>::kThreads,
                                  Cache::kDim <= 128 ? 2 : 1)
    PrefillKernel(const AttentionParams p) {
  LetNextStart();
  WaitForPrevious();
  ForEachPrefillItem(p, [&](const PrefillItem& item) {
    PrefillBlock<Cache, kTileBlocks>{item, p, DynamicShared()}.Run();
  });
}

template <typename Cache, int kTileBlocks>
cudaError_t LaunchPrefill(const Stream& stream, const AttentionParams& params) {
  using Block = PrefillBlock<Cache, kTileBlocks>;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.plan.n_prefill_blocks)),
                          .block = Block::kThreads,
                          .shared_bytes = Block::kSharedBytes};
  return Launch<&PrefillKernel<Cache, kTileBlocks>>(stream, shape, params);
}

template <typename Cache>
cudaError_t Prefill(const Stream& stream, const AttentionParams& params) {
  constexpr size_t kUsualBytes = PrefillBlock<Cache, kUsualTileBlocks>::kSharedBytes;
  if constexpr (kUsualBytes > kLeastBlockSharedBytes) {
    if (kUsualBytes > stream.block_shared_bytes) {
      return LaunchPrefill<Cache, kFewerTileBlocks>(stream, params);
    }
  }
  return LaunchPrefill<Cache, kUsualTileBlocks>(stream, params);
}

}  // namespace stagecoach::kernels::cuda
