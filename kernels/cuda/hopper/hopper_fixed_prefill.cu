// The order of additions is AttentionTile's: 16 elements of the head at a time make a score, 16
// keys at a time an output, and what a row's weights are relative to is decided every 16 keys. Here
// a warpgroup has 64 rows and takes 64 keys at a time: nearly always none of its rows' bases moves
// within those, and all goes at once; else 16 keys after another.
#include <algorithm>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/hopper/hopper_fixed_prefill.h"
#include "kernels/cuda/hopper/hopper_ptx.h"
#include "kernels/cuda/hopper/wgmma.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kWarpgroups = 2, kWarpgroupThreads = 128, kWarpgroupRows = 64;
constexpr int kThreads = kWarpgroups * kWarpgroupThreads;
static_assert(kHopperFixedRows == kWarpgroups * kWarpgroupRows);
constexpr int kTileKeys = 64, kTileBlocks = kTileKeys / kBlockTokens;

// Keys and values are in matrices of 64 rows of 64 elements, as wgmma.h wants them: two of each of
// a tile, in rings. While a tile is weighed, the values of the one before are added.
constexpr int kMatrixRow = 128;
constexpr int kMatrix = 64 * kMatrixRow;  // bytes
constexpr int kTile = 2 * kMatrix;        // of keys, or of values
constexpr int kKeyTiles = 3, kValueTiles = 4;
constexpr int kStateBytes = kHopperFixedRows * kDim * static_cast<int>(sizeof(float));
constexpr int kSharedBytes = (kKeyTiles + kValueTiles) * kTile + kStateBytes + 1024;
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

// What threads wrote to shared memory, for wgmma to see after the next barrier.
__device__ __forceinline__ void FenceShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A warpgroup's collective.
__device__ __forceinline__ bool AnyOfWarpgroup(int warpgroup, bool mine) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %2, 0;\n"
      "barrier.cta.red.or.pred q, %1, 128, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(any)
      : "r"(1 + warpgroup), "r"(static_cast<uint32_t>(mine))
      : "memory");
  return __any_sync(kAllLanes, any != 0);  // for the compiler: the same for all lanes
}

__device__ __forceinline__ float MaxOfQuad(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

// Of the units before, of a lane's part of two rows: the elements in shared memory.
struct RowState {
  float* at;  // every kThreads'th is this thread's
  float base[2], sum[2];
  bool has_keys = false;
};

// A unit's, of the rows g and g + 8 of a warp's 16, g = lane / 4.
template <typename T>
struct UnitState {
  float out[kDim / 2];  // [4 i + 2 j + e]: element 8 i + 2 c + e of row g + 8 j
  float base[2];
  float sums[2][2];  // [j][e]: of the keys 2 c + e of each 8

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) out[i] = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      base[j] = MinusInfinity();
      sums[j][0] = sums[j][1] = 0;
    }
  }

  // scores[4 i + 2 j + e]: of key 8 i + 2 c + e and row g + 8 j. The largest of 16 keys, or all.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ static float Most(const float (&scores)[kTileKeys / 2], int j) {
    float most = scores[8 * kFirst + 2 * j];
#pragma unroll
    for (int i = 2 * kFirst; i < 2 * kEnd; ++i) {
      most = fmaxf(most, fmaxf(scores[4 * i + 2 * j], scores[4 * i + 2 * j + 1]));
    }
    return MaxOfQuad(most);
  }

  // Scores of the k'th 16 keys become weights. factor: by which each row's base has moved.
  template <int kStep>
  __device__ __forceinline__ void Weigh(float to_exponent, const float (&factor)[2],
                                        float (&scores)[kTileKeys / 2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float subtracted = Subtracted(base[j]);
      float* const low = scores + 8 * kStep + 2 * j;
      float* const high = low + 4;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        low[e] = Exp2(fmaf(low[e], to_exponent, -subtracted));
        high[e] = Exp2(fmaf(high[e], to_exponent, -subtracted));
        sums[j][e] = fmaf(sums[j][e], factor[j], low[e] + high[e]);
      }
    }
  }
  template <int kStep>
  __device__ __forceinline__ static void Pack(const float (&weights)[kTileKeys / 2],
                                              uint32_t (&packed)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      packed[i] = PackPair<T>(weights[8 * kStep + 2 * i], weights[8 * kStep + 2 * i + 1]);
    }
  }

  // Bases move where they must, and what is relative to them, but for the sums.
  template <int kStep>
  __device__ __forceinline__ void Move(float to_exponent, const float (&scores)[kTileKeys / 2],
                                       float (&factor)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float most = RoundedProduct(Most<kStep, kStep + 1>(scores, j), to_exponent);
      factor[j] = 1;
      if (IsAboveBase(most, base[j])) {
        factor[j] = Exp2(base[j] - most);
        base[j] = most;
      }
    }
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) out[i] *= factor[i / 2 % 2];
  }
  template <int kStep>
  __device__ __forceinline__ void MoveAndAdd(float to_exponent, float (&scores)[kTileKeys / 2],
                                             uint64_t values) {
    float factor[2];
    Move<kStep>(to_exponent, scores, factor);
    Weigh<kStep>(to_exponent, factor, scores);
    uint32_t weights[4];
    Pack<kStep>(scores, weights);
    FenceAccumulators(out);
    BeginWgmma();
    WgmmaRowsFromRegisters<T>(out, weights, values + kStep * kWgmmaRowsStep);
    CommitWgmma();
    WaitForWgmma<0>();
    FenceAccumulators(out);
  }

  // Of 64 keys, while others may still be added. is_first: the first that the warpgroup sees of the
  // unit. Where bases move within them they are added here, and all weights are zero.
  __device__ __forceinline__ void WeighTile(int warpgroup, bool is_first, float to_exponent,
                                            float (&scores)[kTileKeys / 2], uint64_t values) {
    if (is_first) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        base[j] = RoundedProduct(Most<0, 1>(scores, j), to_exponent);
      }
    }
    bool moves = false;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      moves |= IsAboveBase(RoundedProduct(Most<0, 4>(scores, j), to_exponent), base[j]);
    }
    if (AnyOfWarpgroup(warpgroup, moves)) {
      WaitForWgmma<0>();
      FenceAccumulators(out);
      MoveAndAdd<0>(to_exponent, scores, values);
      MoveAndAdd<1>(to_exponent, scores, values);
      MoveAndAdd<2>(to_exponent, scores, values);
      MoveAndAdd<3>(to_exponent, scores, values);
#pragma unroll
      for (float& weight : scores) weight = 0;
    } else {
      const float factor[2] = {1, 1};
      Weigh<0>(to_exponent, factor, scores);
      Weigh<1>(to_exponent, factor, scores);
      Weigh<2>(to_exponent, factor, scores);
      Weigh<3>(to_exponent, factor, scores);
    }
  }

  __device__ __forceinline__ void BeginAdd(uint64_t values, const uint32_t (&weights)[4][4]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      WgmmaRowsFromRegisters<T>(out, weights[step], values + step * kWgmmaRowsStep);
    }
    CommitWgmma();
  }

  // After the last key: of all lanes' keys.
  __device__ __forceinline__ float Sum(int j) const {
    float sum = sums[j][0] + sums[j][1];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    return sum + __shfl_xor_sync(kAllLanes, sum, 2);
  }

  // The unit is over: to those before.
  __device__ __forceinline__ void EndInto(RowState& state) {
    MergeFactors factors;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float sum = Sum(j);
      if (state.has_keys) {
        state.base[j] = factors.Set(j, state.base[j], base[j]);
        state.sum[j] = factors.Merged(j, state.sum[j], sum);
      } else {
        state.base[j] = base[j];
        state.sum[j] = sum;
      }
    }
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) {
      float& to = state.at[i * kThreads];
      to = state.has_keys ? factors.Merged(i / 2 % 2, to, out[i]) : out[i];
    }
    state.has_keys = true;
    Clear();
  }
};

template <typename T>
struct Item : PrefillItem {
  const AttentionParams& p;
  const uint32_t shared;                  // keys, values
  float* const states;                    // kHopperFixedRows * kDim
  int32_t first_block = 0, last_key = 0;  // that any row of the item sees

  __device__ __forceinline__ static int Thread() { return static_cast<int>(threadIdx.x); }
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

  __device__ __forceinline__ void Run() {
    const int warpgroup = __shfl_sync(kAllLanes, Thread() / kWarpgroupThreads, 0);  // of all lanes
    const int g = Thread() % kWarpThreads / 4, c = Thread() % 4;
    const Visible visible{p.window};
    const int32_t end_row = min(first_row + kHopperFixedRows, n_rows);
    last_key = PositionOf(end_row - 1);
    first_block = visible.First(PositionOf(first_row)) / kBlockTokens;
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
    for (int32_t index = first_tile; index < first_tile + 2; ++index) Fetch(index, EntryOf(index));
    int32_t entry = EntryOf(first_tile + 2);
    // Until tile index + 1 is there, and all are done with index - 1. What to fetch then.
    const auto advance = [&](int32_t index) {
      WaitForCopies<1>();
      FenceShared();
      __syncthreads();
      return index + 3;
    };
    const auto fetch = [&](int32_t index) {
      Fetch(index, entry);
      entry = EntryOf(index + 1);
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
      const uint64_t keys = WgmmaMatrix(KeysOf(tile));
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
                     WgmmaRows(ValuesOf(tile), kMatrix));
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
      unit.BeginAdd(WgmmaRows(ValuesOf(index), kMatrix), weights);
      fetch(later);
      WaitForWgmma<1>();
      FenceAccumulators(scores);
      weigh(index + 1);
    }
    later = advance(index);
    FenceAccumulators(unit.out);
    BeginWgmma();
    unit.BeginAdd(WgmmaRows(ValuesOf(index), kMatrix), weights);
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

bool HasHopperFixedPrefill(DType dtype, int32_t head_dim, bool with_softcap) {
  return dtype != DType::kF32 && head_dim == kDim && !with_softcap;
}

cudaError_t HopperFixedPrefill(const Stream& stream, const AttentionParams& params, DType dtype) {
  return dtype == DType::kBF16 ? LaunchFixedPrefill<BF16>(stream, params)
                               : LaunchFixedPrefill<F16>(stream, params);
}

}  // namespace stagecoach::kernels::cuda
