// Prefill: sequences of several rows. The CTA copies a few KV blocks at a time into shared memory
// while its warps work on the previous ones. Each warp has its own rows, as in FlashAttention-2 (T.
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023).
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/kv_rows.h"

namespace stagecoach::kernels::cuda {
namespace {

// KV blocks per copy. Wide heads use fewer on GPUs that allow a CTA only 99 KB of shared memory
// (compute capability 8.6, 8.9 and 12.0). Blocks are accumulated one by one, so the results are the
// same.
constexpr int kUsualTileBlocks = kKeyTileBlocks, kFewerTileBlocks = 2;
constexpr size_t kLeastBlockSharedBytes = size_t{99} << 10;
constexpr int kStages = 2;

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

template <typename T, int kDim, int kTileBlocks>
struct PrefillBlock : PrefillItem {
  static constexpr int kTileKeys = kTileBlocks * kBlockTokens;
  static constexpr int kRowTiles = RowTilesOf(kDim);
  static constexpr int kThreads = WarpsOf(kDim) * kWarpThreads;
  static constexpr int kHalfBytes = kTileKeys * RowBytesOf(kDim);  // the keys or the values
  static constexpr int kStageBytes = 2 * kHalfBytes;
  static constexpr size_t kSharedBytes = kStages * kStageBytes;
  using Tile = AttentionTile<T, kDim, kRowTiles>;

  const AttentionParams& p;
  unsigned char* shared;
  int32_t first_block, last_block;  // range that any row of the item sees

  // Starts the copy of key tile `index` into its stage. Blocks that no row sees and tokens after
  // last_key become zero.
  __device__ __forceinline__ void Fetch(int32_t index, int32_t last_key) const {
    constexpr int kPieces = kDim / 8;  // 16-byte pieces per row
    unsigned char* const stage = shared + index % kStages * kStageBytes;
    for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * kPieces; i += kThreads) {
      const int row = i / kPieces, byte = i % kPieces * 16;
      const int32_t b = index * kTileBlocks + row / kBlockTokens;
      const int32_t key = index * kTileKeys + row;
      const bool wanted = b >= first_block && key <= last_key;
      const int32_t block = wanted ? table[b] : 0;
      const auto from = [&](const void* cache, const KvSides::Place& place) {
        const int32_t cache_row = CacheRowOf(p.sides, place, block * p.n_kv_heads + kv_head);
        return static_cast<const unsigned char*>(cache) +
               (int64_t{cache_row} * kBlockTokens + row % kBlockTokens) * kDim *
                   static_cast<int64_t>(sizeof(T)) +
               byte;
      };
      const int to = row * RowBytesOf(kDim);
      CopyAsync16(stage + to + SwappedKey(row % kBlockTokens, byte), from(p.k, p.sides.k), wanted);
      CopyAsync16(stage + kHalfBytes + to + SwappedValue(row % kBlockTokens, byte),
                  from(p.v, p.sides.v), wanted);
    }
    CommitCopies();
  }

  __device__ __forceinline__ void LoadQueries(int32_t warp_row, Tile& tile) const {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int32_t row = min(warp_row + 8 * n + g, n_rows - 1);
      tile.q[n].Load(GlobalRow<T>{
          RowOf<kDim>(static_cast<const T*>(p.qkv), row, p.n_heads + 2 * p.n_kv_heads)});
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
      const unsigned char* const stage = shared + index % kStages * kStageBytes;
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
        const unsigned char* const rows = stage + b * kBlockTokens * RowBytesOf(kDim);
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

template <typename T, int kDim, int kTileBlocks>
__global__ void __launch_bounds__(PrefillBlock<T, kDim, kTileBlocks>::kThreads, kDim <= 128 ? 2 : 1)
    PrefillKernel(const AttentionParams p) {
  LetNextStart();
  WaitForPrevious();
  ForEachPrefillItem(p, [&](const PrefillItem& item) {
    PrefillBlock<T, kDim, kTileBlocks>{item, p, DynamicShared()}.Run();
  });
}

template <typename T, int kDim, int kTileBlocks>
cudaError_t LaunchPrefill(const Stream& stream, const AttentionParams& params) {
  using Block = PrefillBlock<T, kDim, kTileBlocks>;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.plan.n_prefill_blocks)),
                          .block = Block::kThreads,
                          .shared_bytes = Block::kSharedBytes};
  return Launch<&PrefillKernel<T, kDim, kTileBlocks>>(stream, shape, params);
}

}  // namespace

cudaError_t PrefillAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                             int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    constexpr size_t kUsualBytes = PrefillBlock<T, kDim, kUsualTileBlocks>::kSharedBytes;
    if constexpr (kUsualBytes > kLeastBlockSharedBytes) {
      if (kUsualBytes > stream.block_shared_bytes) {
        return LaunchPrefill<T, kDim, kFewerTileBlocks>(stream, params);
      }
    }
    return LaunchPrefill<T, kDim, kUsualTileBlocks>(stream, params);
  });
}

}  // namespace stagecoach::kernels::cuda
