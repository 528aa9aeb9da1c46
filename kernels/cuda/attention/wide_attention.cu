#include "kernels/cuda/attention/wide_attention.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"
#include "kernels/cuda/attention/wide_tile.h"

namespace stagecoach::kernels::cuda {
namespace {

// Size of the merged units of a row, beside its elements: bases and sums, which several lanes hold.
constexpr int32_t kFloatsBesideRow = 32;

// The tiles of one part of the plan.
template <typename T, int kKeyDim, int kValueDim, int kRowGroups>
struct WideBlock : PrefillItem {
  using Tile = WideTile<T, kKeyDim, kValueDim, kRowGroups>;
  static constexpr int kThreads = Tile::kThreads, kKeys = Tile::kKeys;
  // A lane's values of the units merged so far, in memory: the lanes of a value side by side.
  static constexpr int kStateFloats = 4 + 4 * Tile::kColTiles;
  static_assert(kStateFloats * kThreads <= Tile::kRows * (kValueDim + kFloatsBesideRow));

  const AttentionParams& p;
  Tile tile;

  __device__ __forceinline__ void Run() {
    const int32_t end_row = EndRow(Tile::kRows), last_key = LastKey(end_row);
    const int32_t first = part.first_key_tile * (kKeyTile / kKeys), last = last_key / kKeys;
    __syncthreads();  // all warps have finished the part before
    FetchQueries(end_row);
    FetchRows(p.k, StageOfKeys(first), first, last_key);
    CommitCopies();
    int32_t positions[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      positions[j] = PositionOf(min(part.first_row + Tile::Row(j), n_rows - 1));
    }
    tile.Clear();
    const int32_t unit_tiles = p.fixed_units ? p.unit_blocks * kBlockTokens / kKeys : 0;
    bool has_kept = false;
    for (int32_t i = first; i <= last; ++i) {
      WaitForCopies<0>();
      __syncthreads();
      const auto fetch_next_keys = [&] {
        if (i < last) FetchRows(p.k, StageOfKeys(i + 1), i + 1, last_key);
        CommitCopies();
      };
      if constexpr (Tile::kHasValues) {
        FetchRows(p.v, kStageOfValues, i, last_key);
        CommitCopies();
      } else {
        fetch_next_keys();
      }
      if (unit_tiles > 0 && i > first && i % unit_tiles == 0) {
        EndUnit(i / unit_tiles - 1, &has_kept);
      }
      tile.Step(
          StageOfKeys(i), Tile::kHasValues ? kStageOfValues : StageOfKeys(i), p.scale,
          [&](int j, int key) { return i * kKeys + key <= positions[j]; },
          [&] {
            if constexpr (Tile::kHasValues) fetch_next_keys();
          },
          [&] {
            if constexpr (Tile::kHasValues) WaitForCopies<1>();  // all but the next keys
          });
    }
    if (part.keeps_units != 0) return Leave(StateOfUnit<kValueDim>(p, last / unit_tiles), end_row);
    if (has_kept) {
      EndUnit(0, &has_kept);
      ForEachValue([&](float& value, int, bool, int place) { value = *Kept(place); });
    }
    if (part.state >= 0) return Leave(p.StateOf<kValueDim>(part.state), end_row);
    Write(end_row);
  }

 private:
  __device__ __forceinline__ void FetchQueries(int32_t end_row) const {
    for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * Tile::kPieces; i += kThreads) {
      const int row = i / Tile::kPieces, piece = i % Tile::kPieces;
      const bool wanted = part.first_row + row < end_row;
      const T* const from = RowOf<kKeyDim>(static_cast<const T*>(p.qkv),
                                           wanted ? part.first_row + row : 0, p.n_in_row);
      CopyAsync16(tile.Queries() + Tile::RowPiece(row, piece), from + piece * 8, wanted);
    }
  }

  // Latents take turns. Else the next keys come when the present ones have been read.
  static constexpr int kStageOfValues = 1;
  __device__ __forceinline__ static int StageOfKeys(int32_t index) {
    return Tile::kHasValues ? 0 : index % 2;
  }

  // Copies tile `index` of keys or values; rows after last_key become zero.
  __device__ __forceinline__ void FetchRows(const void* cache, int stage, int32_t index,
                                            int32_t last_key) const {
    static_assert(kKeys == 2 * kBlockTokens);
    const int32_t first_key = index * kKeys, second_key = first_key + kBlockTokens;
    const int32_t first_head = HeadOfBlock(first_key);
    const int32_t second_head = second_key <= last_key ? HeadOfBlock(second_key) : 0;
#pragma unroll 3
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * Tile::kPieces; i += kThreads) {
      const int row = i / Tile::kPieces, piece = i % Tile::kPieces;
      const int64_t head = row < kBlockTokens ? first_head : second_head;
      const int64_t cache_row = head * kBlockTokens + row % kBlockTokens;
      CopyAsync16(tile.Stage(stage) + Tile::RowPiece(row, piece),
                  static_cast<const T*>(cache) + cache_row * kKeyDim + piece * 8,
                  first_key + row <= last_key);
    }
  }
  // The KV head of the block that holds `key`, counted over all blocks of the cache.
  __device__ __forceinline__ int32_t HeadOfBlock(int32_t key) const {
    return table[key / kBlockTokens] * p.n_kv_heads + kv_head;
  }

  // each(value, j, is_base, place): bases first, then sums, then elements.
  template <typename Each>
  __device__ __forceinline__ void ForEachValue(const Each& each) {
#pragma unroll
    for (int j = 0; j < 2; ++j) each(tile.base[j], j, true, j);
#pragma unroll
    for (int j = 0; j < 2; ++j) each(tile.sum[j], j, false, 2 + j);
#pragma unroll
    for (int t = 0; t < Tile::kColTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) each(tile.out[t][i], i / 2, false, 4 + 4 * t + i);
    }
  }
  __device__ __forceinline__ float* Kept(int place) const {
    return p.memory.states + (int64_t{blockIdx.x} * kStateFloats + place) * kThreads + threadIdx.x;
  }

  // Fixed units: keeps the state of a unit by itself, or merges it into those before it.
  __device__ __forceinline__ void EndUnit(int32_t unit, bool* has_kept) {
    if (part.keeps_units != 0) {
      Leave(StateOfUnit<kValueDim>(p, unit), EndRow(Tile::kRows));
    } else {
      MergeFactors factors{};
      ForEachValue([&](float& value, int j, bool is_base, int place) {
        float* const kept = Kept(place);
        if (*has_kept) {
          value = is_base ? factors.Set(j, *kept, value) : factors.Merged(j, *kept, value);
        }
        *kept = value;
      });
      *has_kept = true;
    }
    tile.Clear();
  }

  __device__ __forceinline__ void Leave(const PartState<kValueDim>& to, int32_t end_row) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = Tile::Row(j);
      if (part.first_row + row >= end_row) continue;
      // All warps of a row group hold the same base and sum.
      if (Tile::Lane() % 4 == 0) *to.BaseAndSum(row) = float2{tile.base[j], tile.sum[j]};
#pragma unroll
      for (int t = 0; t < Tile::kColTiles; ++t) {
        *reinterpret_cast<float2*>(to.Row(row) + Tile::Col(t)) =
            float2{tile.out[t][2 * j], tile.out[t][2 * j + 1]};
      }
    }
  }

  __device__ __forceinline__ void Write(int32_t end_row) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int32_t row = part.first_row + Tile::Row(j);
      if (row >= end_row) continue;
      T* const out = RowOf<kValueDim>(static_cast<T*>(p.out), row, p.n_heads);
      const float inverse =
          InverseOfSum(tile.base[j], tile.sum[j], p.sinks.ExponentOf(HeadOf(row)));
#pragma unroll
      for (int t = 0; t < Tile::kColTiles; ++t) {
        *reinterpret_cast<uint32_t*>(out + Tile::Col(t)) =
            PackPair<T>(tile.out[t][2 * j] * inverse, tile.out[t][2 * j + 1] * inverse);
      }
    }
  }
};

template <typename T, int kKeyDim, int kValueDim, int kRowGroups>
__global__ void __launch_bounds__(WideTile<T, kKeyDim, kValueDim, kRowGroups>::kThreads,
                                  kRowGroups == 1 ? 2 : 1) WideKernel(const AttentionParams p) {
  LetNextStart();
  WaitForPrevious();
  ForEachPrefillItem(p, [&](const PrefillItem& item) {
    WideBlock<T, kKeyDim, kValueDim, kRowGroups>{item, p, {.shared = DynamicShared()}}.Run();
  });
}

constexpr WideShape kShapes[] = {{576, 512}, {320, 256}, {512, 512}};
// Tiles of the shape that takes most shared memory.
using WidestTile = WideTile<BF16, 576, 512, kWideRows / 16>;
using FewRowsTile = WideTile<BF16, 576, 512, kFewWideRows / 16>;
static_assert(FewRowsTile::kSharedBytes <= size_t{99} << 10, "every GPU has as much");

// Rows of the largest tile that the device can run.
int32_t MostRows(const Stream& stream) {
  return WidestTile::kSharedBytes <= stream.block_shared_bytes ? kWideRows : kFewWideRows;
}

int64_t FloatsOfUnits(const Stream& stream, const AttentionSetup& setup) {
  if (!setup.fixed_units) return 0;
  // Two small tiles may run on an SM.
  const int32_t rows = std::max(MostRows(stream), 2 * kFewWideRows);
  return int64_t{stream.n_all_multiprocessors} * rows * (setup.wide.value_dim + kFloatsBesideRow);
}
int64_t FloatsOfStates(const Stream& stream, const AttentionSetup& setup) {
  // Two states per CTA are enough to cut the keys evenly. Kept units need more.
  return int64_t{setup.fixed_units ? 8 : 2} * stream.n_all_multiprocessors * MostRows(stream) *
         (setup.wide.value_dim + 2);
}

template <typename T, int kKeyDim, int kValueDim, int kRowGroups>
cudaError_t LaunchRows(const Stream& stream, const AttentionParams& params) {
  using Tile = WideTile<T, kKeyDim, kValueDim, kRowGroups>;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.plan.n_prefill_blocks)),
                          .block = Tile::kThreads,
                          .shared_bytes = Tile::kSharedBytes,
                          .n_together = kRowGroups == 1 ? 2 : 1};
  return Launch<&WideKernel<T, kKeyDim, kValueDim, kRowGroups>>(stream, shape, params);
}

template <int kKeyDim, int kValueDim>
cudaError_t LaunchWide(const Stream& stream, const AttentionParams& params, DType dtype) {
  const auto launch = [&]<typename T>() {
    return params.prefill_rows == kFewWideRows
               ? LaunchRows<T, kKeyDim, kValueDim, kFewWideRows / 16>(stream, params)
               : LaunchRows<T, kKeyDim, kValueDim, kWideRows / 16>(stream, params);
  };
  return dtype == DType::kBF16 ? launch.template operator()<BF16>()
                               : launch.template operator()<F16>();
}

}  // namespace

WideShape WideShapeOf(const StepLimits& limits, const GroupLimits& group) {
  const int32_t head_dim = group.head_dim > 0 ? group.head_dim : limits.head_dim;
  const WideShape shape{head_dim, group.latent_rank > 0 ? group.latent_rank : head_dim};
  const bool has_kernel =
      std::find(std::begin(kShapes), std::end(kShapes), shape) != std::end(kShapes);
  return has_kernel && limits.act_dtype != DType::kF32 && limits.kv_dtype == limits.act_dtype &&
                 group.window == 0 && !limits.has_softcap
             ? shape
             : WideShape{};
}

int32_t WideTileRows(const Stream& stream, int32_t rows_of_token, bool decodes_only) {
  return decodes_only && rows_of_token <= 2 * kFewWideRows ? kFewWideRows : MostRows(stream);
}

int32_t NWideBlocks(const Stream& stream, int32_t tile_rows) {
  const bool two_fit =
      tile_rows == kFewWideRows && 2 * FewRowsTile::kSharedBytes <= stream.block_shared_bytes;
  return stream.n_multiprocessors * (two_fit ? 2 : 1);
}

AttentionNeeds WideNeeds(const Stream& stream, const AttentionSetup& setup) {
  return {.n_floats = FloatsOfUnits(stream, setup) + FloatsOfStates(stream, setup)};
}

int32_t MaxWideStates(const Stream& stream, const AttentionSetup& setup, int32_t tile_rows) {
  const int64_t floats = int64_t{tile_rows} * (setup.wide.value_dim + 2);
  return static_cast<int32_t>(FloatsOfStates(stream, setup) / floats);
}

cudaError_t WideAttention(const Stream& stream, const AttentionArgs& args,
                          const AttentionPlan& plan, const AttentionSetup& setup,
                          const AttentionMemory& memory) {
  const WideShape shape{args.head_dim,
                        args.kv_of_row == KvOfRow::kLatents ? args.value_dim : args.head_dim};
  SC_CHECK(shape == setup.wide && args.softcap == 0 && args.window == 0);
  const DType dtype = args.qkv.dtype;
  SC_CHECK(args.kv.dtype == dtype && args.out.dtype == dtype);
  AttentionParams params = ParamsOf(stream, args, plan, setup, memory);
  params.prefill_rows = plan.tile_rows;
  params.part_states = memory.states + FloatsOfUnits(stream, setup);
  const auto launch = shape.key_dim == 576   ? &LaunchWide<576, 512>
                      : shape.key_dim == 320 ? &LaunchWide<320, 256>
                                             : &LaunchWide<512, 512>;
  const cudaError_t error = launch(stream, params, dtype);
  if (error != cudaSuccess || plan.n_merges == 0) return error;
  return MergeWideParts(stream, params, dtype, shape.value_dim);
}

}  // namespace stagecoach::kernels::cuda
