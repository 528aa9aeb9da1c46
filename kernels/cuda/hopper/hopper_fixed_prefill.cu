// The order of additions is AttentionTile's: 16 elements of the head at a time make a score, 16
// keys at a time an output, and what a row's weights are relative to is decided every 16 keys. Here
// a warpgroup has 64 rows and takes 64 keys at a time: nearly always none of its rows' bases moves
// within those, and all goes at once; else 16 keys after another.
#include <algorithm>

#include "kernels/cuda/hopper/hopper_fixed_prefill.h"
#include "kernels/cuda/hopper/hopper_fixed_tiles.h"
#include "kernels/cuda/hopper/hopper_fixed_unit.h"
#include "kernels/cuda/hopper/hopper_ptx.h"

namespace stagecoach::kernels::cuda {
namespace hopper_fixed {
namespace {

template <typename T>
struct Item : PrefillItem {
  const AttentionParams& p;
  const uint32_t shared;  // of TileRings
  float* const states;    // kHopperFixedRows * kDim

  // A lane's elements of the j'th of its rows, in the order that FactorPlace gives to keys.
  __device__ __forceinline__ static void LoadQuery(const T* row, int j,
                                                   uint32_t (&queries)[kDim / 16][4]) {
    const int c = Thread() % 4;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const T* const from = row + step / 2 * 32 + step % 2 * 4 + c / 2 * 8 + c % 2 * 2;
      queries[step][j] = *reinterpret_cast<const uint32_t*>(from);
      queries[step][2 + j] = *reinterpret_cast<const uint32_t*>(from + 16);
    }
  }

  __device__ __forceinline__ void Run() {
    const int warpgroup = __shfl_sync(kAllLanes, Thread() / kWarpgroupThreads, 0);  // of all lanes
    const int g = Thread() % kWarpThreads / 4, c = Thread() % 4;
    const Visible visible{p.window};
    const int32_t end_row = min(first_row + kHopperFixedRows, n_rows);
    const int32_t last_key = PositionOf(end_row - 1);
    const int32_t first_block = visible.First(PositionOf(first_row)) / kBlockTokens;
    const TileRings tiles{p, table, kv_head, first_block, last_key, shared};
    const int32_t first_tile = first_block / kTileBlocks, last_tile = last_key / kTileKeys;

    // Of this warpgroup's rows; one past the end has none, but helps to fetch.
    const int32_t group_row = first_row + warpgroup * kWarpgroupRows;
    const bool has_rows = group_row < end_row;
    const int32_t earliest = PositionOf(min(group_row, n_rows - 1));
    const int32_t latest = PositionOf(min(group_row + kWarpgroupRows, end_row) - 1);
    const int32_t group_first = visible.First(earliest) / kTileKeys,
                  group_last = latest / kTileKeys;
    const int32_t row = group_row + Thread() % kWarpgroupThreads / kWarpThreads * 16 + g;
    const int32_t positions[2] = {PositionOf(row), PositionOf(row + 8)};
    const float to_exponent = p.scale.factor;

    // The item before is done with all of it.
    __syncthreads();
    for (int32_t index = first_tile; index < first_tile + 2; ++index) {
      tiles.Fetch(index, tiles.EntryOf(index));
    }
    int32_t entry = tiles.EntryOf(first_tile + 2);
    // Until tile index + 1 is there, and all are done with index - 1. What to fetch then.
    const auto advance = [&](int32_t index) {
      WaitForCopies<1>();
      ptx::FenceShared();
      __syncthreads();
      return index + 3;
    };
    const auto fetch = [&](int32_t index) {
      tiles.Fetch(index, entry);
      entry = tiles.EntryOf(index + 1);
    };
    int32_t index = first_tile - 1;  // of the tile whose values are added
    const auto pass = [&](int32_t end) {
      for (; index < end; ++index) fetch(advance(index));
    };
    if (!has_rows) return pass(last_tile + 1);

    uint32_t queries[kDim / 16][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // Rows past the last repeat it; nothing is written of them.
      LoadQuery(RowOf<kDim>(static_cast<const T*>(p.qkv), min(row + 8 * j, n_rows - 1),
                            p.n_heads + 2 * p.n_kv_heads),
                j, queries);
    }
    UnitState<T> unit;
    unit.Clear();
    RowState state{.at = states + Thread()};
    float scores[kTileKeys / 2];
    uint32_t weights[4][4];
    const auto begin_scores = [&](int32_t tile) __attribute__((always_inline)) {
      const uint64_t keys = WgmmaMatrix(tiles.KeysOf(tile));
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        WgmmaFromRegisters<T>(scores, queries[step],
                              keys + step / 4 * (kMatrix >> 4) + step % 4 * kWgmmaStep, step > 0);
      }
      CommitWgmma();
    };
    const auto weigh = [&](int32_t tile) __attribute__((always_inline)) {
      const bool is_start = tile * kTileBlocks % p.unit_blocks == 0;
      if (is_start && tile > group_first) {
        WaitForWgmma<0>();
        FenceAccumulators(unit.out);
        unit.EndInto(state);
      }
      const int32_t first_key = tile * kTileKeys;
      if (first_key < visible.First(latest) || first_key + kTileKeys - 1 > earliest) {
#pragma unroll
        for (int i = 0; i < kTileKeys / 2; ++i) {
          const int32_t key = first_key + i / 4 * 8 + 2 * c + i % 2;
          if (!visible(key, positions[i / 2 % 2])) scores[i] = MinusInfinity();
        }
      }
      unit.WeighTile(warpgroup, is_start || tile == group_first, to_exponent, scores,
                     WgmmaRows(tiles.ValuesOf(tile), kMatrix));
      WaitForWgmma<0>();
      FenceAccumulators(unit.out);
      FenceAccumulators(scores);
      unit.template Pack<0>(scores, weights[0]);
      unit.template Pack<1>(scores, weights[1]);
      unit.template Pack<2>(scores, weights[2]);
      unit.template Pack<3>(scores, weights[3]);
    };

    pass(group_first - 1);
    int32_t later = advance(index);
    FenceAccumulators(scores);
    BeginWgmma();
    begin_scores(group_first);
    fetch(later);
    WaitForWgmma<0>();
    FenceAccumulators(scores);
    weigh(group_first);
    for (index = group_first; index < group_last; ++index) {
      later = advance(index);
      FenceAccumulators(scores);
      FenceAccumulators(unit.out);
      BeginWgmma();
      begin_scores(index + 1);
      unit.BeginAdd(WgmmaRows(tiles.ValuesOf(index), kMatrix), weights);
      fetch(later);
      WaitForWgmma<1>();
      FenceAccumulators(scores);
      weigh(index + 1);
    }
    later = advance(index);
    FenceAccumulators(unit.out);
    BeginWgmma();
    unit.BeginAdd(WgmmaRows(tiles.ValuesOf(index), kMatrix), weights);
    fetch(later);
    WaitForWgmma<0>();
    FenceAccumulators(unit.out);
    ++index;
    pass(last_tile + 1);

    if (state.has_keys) {
      unit.EndInto(state);
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) unit.out[i] = state.at[i * kThreads];
    } else {
      state.sum[0] = unit.Sum(0);
      state.sum[1] = unit.Sum(1);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (row + 8 * j >= end_row) continue;
      T* const to = RowOf<kDim>(static_cast<T*>(p.out), row + 8 * j, p.n_heads) + 2 * c;
      const float inverse = 1.0f / state.sum[j];
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        *reinterpret_cast<uint32_t*>(to + 8 * i) =
            PackPair<T>(unit.out[4 * i + 2 * j] * inverse, unit.out[4 * i + 2 * j + 1] * inverse);
      }
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads, 1) HopperFixedKernel(const AttentionParams p) {
  LetNextStart();
  WaitForPrevious();
  unsigned char* const dynamic = DynamicShared();
  const uint32_t to_aligned = (1024 - ptx::SharedAddress(dynamic) % 1024) % 1024;
  ForEachPrefillItem(p, [&](const PrefillItem& item) {
    Item<T>{item, p, ptx::SharedAddress(dynamic) + to_aligned,
            reinterpret_cast<float*>(dynamic + to_aligned + (kKeyTiles + kValueTiles) * kTile)}
        .Run();
  });
}

template <typename T>
cudaError_t LaunchFixedPrefill(const Stream& stream, const AttentionParams& params) {
  const int32_t n_items = params.plan.n_tiles * params.n_kv_heads;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(std::min(n_items, stream.n_multiprocessors))),
      .block = kThreads,
      .shared_bytes = kSharedBytes};
  return Launch<&HopperFixedKernel<T>>(stream, shape, params);
}

}  // namespace
}  // namespace hopper_fixed

bool HasHopperFixedPrefill(DType dtype, int32_t head_dim, bool with_softcap) {
  return dtype != DType::kF32 && head_dim == hopper_fixed::kDim && !with_softcap;
}

cudaError_t HopperFixedPrefill(const Stream& stream, const AttentionParams& params, DType dtype) {
  return dtype == DType::kBF16 ? hopper_fixed::LaunchFixedPrefill<BF16>(stream, params)
                               : hopper_fixed::LaunchFixedPrefill<F16>(stream, params);
}

}  // namespace stagecoach::kernels::cuda
