// The order of additions is that of AttentionTile: a score sums 16 head elements at a time, an
// output sums 16 keys at a time, and every 16 keys may move a row's base. Here a warpgroup has 64
// rows and takes 64 keys at a time. Nearly always no base of its rows moves within them, and all 64
// keys go at once; otherwise 16 keys at a time.
#include "kernels/cuda/attention/hopper_packed_prefill.h"

#include <algorithm>

#include "kernels/cuda/attention/hopper_packed_tiles.h"
#include "kernels/cuda/attention/hopper_packed_unit.h"
#include "kernels/cuda/hopper/hopper_ptx.h"

namespace stagecoach::kernels::cuda {
namespace hopper_packed {
namespace {

template <typename T, int kDim>
struct Item : PrefillItem {
  const AttentionParams& p;
  const uint32_t shared;  // shared address of the TileRings
  float* const states;    // [kHopperPackedRows * kDim]

  // Loads a lane's elements of its j'th row, in the order that FactorPlace gives to keys.
  __device__ __forceinline__ static void LoadQuery(const T* row, int j,
                                                   uint32_t (&queries)[kDim / 16][4]) {
    const int c = Thread() % 4;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const bool is_last = step >= kDim / 32 * 2;
      const T* const from = is_last ? row + step * 16 + c * 2
                                    : row + step / 2 * 32 + step % 2 * 4 + c / 2 * 8 + c % 2 * 2;
      queries[step][j] = *reinterpret_cast<const uint32_t*>(from);
      queries[step][2 + j] = *reinterpret_cast<const uint32_t*>(from + (is_last ? 8 : 16));
    }
  }

  __device__ __forceinline__ void Run() {
    // The shuffle tells the compiler that the value is uniform in the warp.
    const int warpgroup = __shfl_sync(kAllLanes, Thread() / kWarpgroupThreads, 0);
    const int g = Thread() % kWarpThreads / 4, c = Thread() % 4;
    const int32_t end_row = EndRow(kHopperPackedRows), last_key = LastKey(end_row);
    const int32_t first_block = FirstBlock(p.window);
    const TileRings<kDim> tiles{p, table, kv_head, first_block, last_key, shared};
    const int32_t first_tile = first_block / kTileBlocks, last_tile = last_key / kTileKeys;

    // Range of this warpgroup's rows. A warpgroup beyond the end has no rows but helps with the
    // copies.
    const int32_t group_row = part.first_row + warpgroup * kWarpgroupRows;
    const bool has_rows = group_row < end_row;
    const int32_t earliest = PositionOf(min(group_row, n_rows - 1));
    const int32_t latest = PositionOf(min(group_row + kWarpgroupRows, end_row) - 1);
    const int32_t group_first = max(p.window.First(earliest) / kTileKeys, first_tile);
    const int32_t group_last = min(latest / kTileKeys, last_tile);
    const int32_t row = group_row + Thread() % kWarpgroupThreads / kWarpThreads * 16 + g;
    const int32_t positions[2] = {PositionOf(row), PositionOf(row + 8)};
    const int32_t state_row = row - part.first_row, end_state_row = end_row - part.first_row;
    const float to_exponent = p.scale.FactorOfCapped();

    // Wait until all threads are done with the previous item's shared memory.
    __syncthreads();
    for (int32_t index = first_tile; index < first_tile + 2; ++index) {
      tiles.Fetch(index, tiles.EntryOf(index));
    }
    Entry entry = tiles.EntryOf(first_tile + 2);
    // Waits until tile index + 1 has arrived and all threads are done with index - 1. Returns the
    // next tile to fetch.
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
    int32_t index = first_tile - 1;  // the tile whose values are added
    const auto pass = [&](int32_t end) {
      for (; index < end; ++index) fetch(advance(index));
    };
    if (!has_rows) return pass(last_tile + 1);
    const int32_t first_unit = part.keeps_units != 0 ? UnitOf(p, group_first) : 0;
    const int32_t last_unit = part.keeps_units != 0 ? UnitOf(p, group_last) : 0;
    const bool sees_keys = group_first <= group_last;
    if (part.keeps_units != 0) {
      ForUnseenStates<kDim>(
          p, first_unit, sees_keys ? last_unit : -1,
          [&](const PartState<kDim>& to) { LeaveNothing(to, state_row, end_state_row); });
    }
    if (!sees_keys) {
      if (part.keeps_units == 0) {
        LeaveNothing(p.StateOf<kDim>(part.state), state_row, end_state_row);
      }
      return pass(last_tile + 1);
    }

    uint32_t queries[kDim / 16][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // Rows beyond the last one repeat it; nothing is written for them.
      LoadQuery(RowOf<kDim>(static_cast<const T*>(p.qkv), min(row + 8 * j, n_rows - 1), p.n_in_row),
                j, queries);
    }
    UnitState<T, kDim> unit;
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
      const bool is_start = p.fixed_units && tile * kTileBlocks % p.unit_blocks == 0;
      if (is_start && tile > group_first) {
        WaitForWgmma<0>();
        FenceAccumulators(unit.out);
        if (part.keeps_units != 0) {
          unit.Leave(StateOfUnit<kDim>(p, UnitOf(p, tile) - 1), state_row, end_state_row);
          unit.Clear();
        } else {
          unit.EndInto(state);
        }
      }
      if (p.scale.cap != 0) {
#pragma unroll
        for (float& score : scores) score = p.scale.Capped(score);
      }
      const int32_t first_key = tile * kTileKeys;
      if (first_key < p.window.First(latest) || first_key + kTileKeys - 1 > earliest) {
#pragma unroll
        for (int i = 0; i < kTileKeys / 2; ++i) {
          const int32_t key = first_key + i / 4 * 8 + 2 * c + i % 2;
          if (!p.window.Sees(positions[i / 2 % 2], key)) scores[i] = MinusInfinity();
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

    if (part.keeps_units != 0) {
      return unit.Leave(StateOfUnit<kDim>(p, last_unit), state_row, end_state_row);
    }
    if (state.has_keys) {
      unit.EndInto(state);
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) unit.out[i] = state.at[i * kThreads];
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        state.base[j] = unit.base[j];
        state.sum[j] = unit.Sum(j);
      }
    }
    if (part.state >= 0) {
      return Leave(unit.out, state.base, state.sum, p.StateOf<kDim>(part.state), state_row,
                   end_state_row);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (row + 8 * j >= end_row) continue;
      T* const to = RowOf<kDim>(static_cast<T*>(p.out), row + 8 * j, p.n_heads) + 2 * c;
      const float inverse =
          InverseOfSum(state.base[j], state.sum[j], p.sinks.ExponentOf(HeadOf(row + 8 * j)));
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        *reinterpret_cast<uint32_t*>(to + 8 * i) =
            PackPair<T>(unit.out[4 * i + 2 * j] * inverse, unit.out[4 * i + 2 * j + 1] * inverse);
      }
    }
  }
};

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads, 1) HopperPackedKernel(const AttentionParams p) {
  LetNextStart();
  WaitForPrevious();
  unsigned char* const dynamic = DynamicShared();
  const uint32_t to_aligned = (1024 - ptx::SharedAddress(dynamic) % 1024) % 1024;
  ForEachPrefillItem(p, [&](const PrefillItem& item) {
    Item<T, kDim>{item, p, ptx::SharedAddress(dynamic) + to_aligned,
                  reinterpret_cast<float*>(dynamic + to_aligned + kRings<kDim>)}
        .Run();
  });
}

template <typename T, int kDim>
cudaError_t LaunchPacked(const Stream& stream, const AttentionParams& params) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.plan.n_prefill_blocks)),
                          .block = kThreads,
                          .shared_bytes = kSharedBytes<kDim>};
  return Launch<&HopperPackedKernel<T, kDim>>(stream, shape, params);
}

constexpr bool IsPacked(int head_dim) { return head_dim <= 128; }

}  // namespace
}  // namespace hopper_packed

bool HasHopperPackedPrefill(DType dtype, int32_t head_dim) {
  return HasAttentionTile(dtype, head_dim) && hopper_packed::IsPacked(head_dim);
}

cudaError_t HopperPackedPrefill(const Stream& stream, const AttentionParams& params, DType dtype,
                                int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    if constexpr (hopper_packed::IsPacked(kDim)) {
      return hopper_packed::LaunchPacked<T, kDim>(stream, params);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace stagecoach::kernels::cuda
