#include "kernels/cuda/experts/expert_rows.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kGroupingThreads = 1024;
static_assert(kGroupingThreads >= kMaxExperts && kGroupingThreads == 32 * kWarpThreads);
constexpr int kLoadsTogether = 8;  // of a thread that counts or places pairs

// Calls use(pair, expert) for each pair of the CTA's part, in its threads.
template <typename Use>
__device__ __forceinline__ void ForEachPair(const GroupPairsArgs& p, const Use& use) {
  const int64_t part = blockIdx.x, n_parts = gridDim.x;
  const auto begin = static_cast<int32_t>(p.n_pairs * part / n_parts);
  const auto end = static_cast<int32_t>(p.n_pairs * (part + 1) / n_parts);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t first = begin + thread; first < end; first += kLoadsTogether * kGroupingThreads) {
    int32_t experts[kLoadsTogether];
#pragma unroll
    for (int k = 0; k < kLoadsTogether; ++k) {
      const int32_t pair = first + k * kGroupingThreads;
      experts[k] = pair < end ? p.experts[pair] : -1;
    }
#pragma unroll
    for (int k = 0; k < kLoadsTogether; ++k) {
      if (experts[k] >= 0) use(first + k * kGroupingThreads, experts[k]);
    }
  }
}

// The sum over all lower lanes and the own one.
__device__ __forceinline__ int32_t SumUpToLane(int32_t value, int lane) {
#pragma unroll
  for (int delta = 1; delta < kWarpThreads; delta *= 2) {
    const int32_t lower = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(delta));
    if (lane >= delta) value += lower;
  }
  return value;
}

// The sum of the values of all lower threads. shared: [32]; every thread of the CTA calls this.
__device__ __forceinline__ int32_t SumOfLower(int32_t value, int32_t* shared) {
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int32_t up_to = SumUpToLane(value, lane);
  if (lane == kWarpThreads - 1) shared[warp] = up_to;
  __syncthreads();
  if (warp == 0) {
    const int32_t total = shared[lane];
    const int32_t all = SumUpToLane(total, lane);
    shared[lane] = all - total;
  }
  __syncthreads();
  return shared[warp] + up_to - value;
}

// counts: [kMaxExperts] in shared memory, the pairs of each expert in the CTA's part.
__device__ __forceinline__ void CountPairs(const GroupPairsArgs& p, int32_t* counts) {
  counts[threadIdx.x] = 0;
  __syncthreads();
  ForEachPair(p, [&](int32_t, int32_t expert) { atomicAdd(&counts[expert], 1); });
  __syncthreads();
}

// One CTA per part.
__global__ void __launch_bounds__(kGroupingThreads) CountPairsKernel(const GroupPairsArgs p) {
  __shared__ int32_t counts[kMaxExperts];
  LetNextStart();
  WaitForPrevious();
  CountPairs(p, counts);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < p.n_experts) {
    p.counts[static_cast<int32_t>(blockIdx.x) * p.n_experts + thread] = counts[thread];
  }
}

// A thread's expert.
struct ExpertCount {
  int32_t n = 0;       // pairs
  int32_t before = 0;  // pairs in lower parts
};

__device__ __forceinline__ ExpertCount SumCounts(const GroupPairsArgs& p, int32_t expert) {
  ExpertCount sum;
  if (expert >= p.n_experts) return sum;
  const auto own = static_cast<int32_t>(blockIdx.x), n_parts = static_cast<int32_t>(gridDim.x);
#pragma unroll 8
  for (int32_t part = 0; part < n_parts; ++part) {
    const int32_t n = p.counts[part * p.n_experts + expert];
    sum.n += n;
    sum.before += part < own ? n : 0;
  }
  return sum;
}

// One CTA per part; with several, CountPairsKernel was before this.
__global__ void __launch_bounds__(kGroupingThreads) GroupPairsKernel(const GroupPairsArgs p) {
  __shared__ int32_t next[kMaxExperts];  // the place of an expert's next pair
  __shared__ int32_t rows_of_warps[32], tiles_of_warps[32];
  LetNextStart();
  WaitForPrevious();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  ExpertCount count;
  if (gridDim.x > 1) {
    count = SumCounts(p, thread);
  } else {
    CountPairs(p, next);
    count.n = thread < p.n_experts ? next[thread] : 0;
  }
  const int32_t n = count.n, n_tiles = (n + p.tile_rows - 1) / p.tile_rows;
  const int32_t first_row = SumOfLower(n, rows_of_warps);
  const int32_t first_tile = SumOfLower(n_tiles, tiles_of_warps);
  next[thread] = first_row + count.before;
  if (blockIdx.x == 0) {
    if (thread == kGroupingThreads - 1) *p.n_tiles = first_tile + n_tiles;
    for (int32_t i = 0; i < n_tiles; ++i) {
      if (p.groups != nullptr) {
        p.groups[first_tile + i] = {thread, first_row + i * p.tile_rows,
                                    min(n - i * p.tile_rows, p.tile_rows)};
      } else {
        const int32_t before = i / kMaxRunTiles * kMaxRunTiles;  // tiles before this run
        p.tiles[first_tile + i] = {thread, first_row + before * p.tile_rows,
                                   min(n - before * p.tile_rows, kMaxRunTiles * p.tile_rows),
                                   first_tile + before};
      }
    }
  }
  __syncthreads();
  ForEachPair(p, [&](int32_t pair, int32_t expert) {
    const int32_t place = atomicAdd(&next[expert], 1);
    p.order[place] = pair;
    p.places[pair] = place;
  });
}

// One CTA per row.
__global__ void SortRowsKernel(const SortRowsArgs p) {
  WaitForPrevious();
  LetNextStart();
  const int64_t row = blockIdx.x;
  const int32_t n = p.width / 8;  // pieces of 16 bytes
  const uint4* const from = static_cast<const uint4*>(p.x.data) + row * n;
  const int32_t* const places = p.places + row * p.n_used;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < n;
       i += static_cast<int32_t>(blockDim.x)) {
    const uint4 piece = from[i];
    for (int32_t j = 0; j < p.n_used; ++j) {
      static_cast<uint4*>(p.out)[int64_t{places[j]} * n + i] = piece;
    }
  }
}

// The same, with the pairs of each chunk in another order: a thread moves a chunk.
template <InputOrder kOrder>
__global__ void SortChunksKernel(const SortRowsArgs p) {
  WaitForPrevious();
  LetNextStart();
  const int64_t row = blockIdx.x;
  const int32_t n = p.width / 8;
  const uint4* const from = static_cast<const uint4*>(p.x.data) + row * n;
  const int32_t* const places = p.places + row * p.n_used;
  for (int32_t i = static_cast<int32_t>(threadIdx.x) * 4; i < n;
       i += static_cast<int32_t>(blockDim.x) * 4) {
    uint32_t pairs[16];
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      const uint4 four = from[i + piece];
      pairs[4 * piece] = four.x;
      pairs[4 * piece + 1] = four.y;
      pairs[4 * piece + 2] = four.z;
      pairs[4 * piece + 3] = four.w;
    }
    for (int32_t j = 0; j < p.n_used; ++j) {
      uint4* const to = static_cast<uint4*>(p.out) + int64_t{places[j]} * n + i;
#pragma unroll
      for (int piece = 0; piece < 4; ++piece) {
        const PieceOrder order = OrderOfPiece(kOrder, piece);
        to[piece] =
            make_uint4(pairs[order.first], pairs[order.first + order.step],
                       pairs[order.first + 2 * order.step], pairs[order.first + 3 * order.step]);
      }
    }
  }
}

// One CTA per row. A thread adds kN columns at a time.
template <typename T, int kN>
__global__ void CombineKernel(const CombineArgs p) {
  // In ascending order of expert id; rows: in y.
  __shared__ int32_t rows[kMaxExperts], experts[kMaxExperts];
  __shared__ float weights[kMaxExperts];
  LetNextStart();
  WaitForPrevious();
  const int64_t first_pair = int64_t{blockIdx.x} * p.n_used;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto n_threads = static_cast<int32_t>(blockDim.x);
  for (int32_t j = thread; j < p.n_used; j += n_threads) {
    const int32_t expert = p.experts[first_pair + j];
    int32_t n_lower = 0;
    for (int32_t i = 0; i < p.n_used; ++i) n_lower += p.experts[first_pair + i] < expert ? 1 : 0;
    rows[n_lower] =
        p.places != nullptr ? p.places[first_pair + j] : static_cast<int32_t>(first_pair) + j;
    experts[n_lower] = expert;
    weights[n_lower] = p.weights[first_pair + j];
  }
  __syncthreads();
  const T* const y = static_cast<const T*>(p.y.data);
  float* const out = p.out + int64_t{blockIdx.x} * p.width;
  for (int32_t column = thread * kN; column < p.width; column += n_threads * kN) {
    float sums[kN];
    LoadFloats<kN>(out + column, sums);
#pragma unroll 8
    for (int32_t j = 0; j < p.n_used; ++j) {
      float values[kN];
      LoadFloats<kN>(y + int64_t{rows[j]} * p.width + column, values);
      if (p.bias != nullptr) {
        const float* const bias = p.bias + int64_t{experts[j]} * p.width + column;
#pragma unroll
        for (int k = 0; k < kN; ++k) values[k] += bias[k];
      }
#pragma unroll
      for (int k = 0; k < kN; ++k) sums[k] += weights[j] * values[k];
    }
    StoreFloats<kN>(sums, out + column);
  }
}

// The number of groups, sorted by matrix, of matrices before this one.
template <typename Group>
__device__ int32_t GroupsBefore(const Group* groups, int32_t n_groups, int32_t matrix) {
  int32_t begin = 0, end = n_groups;
  while (begin < end) {
    const int32_t middle = (begin + end) / 2;
    if (groups[middle].matrix < matrix) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Calls copy(index, first index) in one thread for each group of the matrices.
template <typename Group, typename Copy>
__device__ void Select(const SelectGroupsArgs& p, const Group* groups, const Copy& copy) {
  WaitForPrevious();
  const auto i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  const int32_t n_groups = *p.n_groups;
  const int32_t begin = GroupsBefore(groups, n_groups, p.first);
  const int32_t end = GroupsBefore(groups, n_groups, p.first + p.n_matrices);
  if (i == 0) *p.n_selected = end - begin;
  if (begin <= i && i < end) copy(i, begin);
}

__global__ void SelectGroupsKernel(const SelectGroupsArgs p) {
  Select(p, p.groups, [&](int32_t i, int32_t begin) {
    RowGroup group = p.groups[i];
    group.matrix -= p.first;
    p.selected_groups[i - begin] = group;
  });
}

__global__ void SelectTilesKernel(const SelectGroupsArgs p) {
  Select(p, p.tiles, [&](int32_t i, int32_t begin) {
    RowTile tile = p.tiles[i];
    tile.matrix -= p.first;
    tile.first_tile -= begin;
    p.selected_tiles[i - begin] = tile;
  });
}

}  // namespace

cudaError_t GroupPairs(const Stream& stream, const GroupPairsArgs& args) {
  SC_CHECK(args.n_experts <= kMaxExperts && (args.groups == nullptr) != (args.tiles == nullptr));
  const int32_t n_parts = GroupingParts(args.n_pairs);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_parts)), .block = kGroupingThreads};
  if (n_parts > 1) {
    const cudaError_t error = Launch<&CountPairsKernel>(stream, shape, args);
    if (error != cudaSuccess) return error;
  }
  return Launch<&GroupPairsKernel>(stream, shape, args);
}

cudaError_t SelectGroups(const Stream& stream, const SelectGroupsArgs& args) {
  SC_CHECK((args.groups == nullptr) != (args.tiles == nullptr) && args.max_groups > 0);
  constexpr int kThreads = 256;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.max_groups, kThreads))),
                          .block = kThreads};
  return args.groups != nullptr ? Launch<&SelectGroupsKernel>(stream, shape, args)
                                : Launch<&SelectTilesKernel>(stream, shape, args);
}

cudaError_t SortRows(const Stream& stream, const SortRowsArgs& args) {
  SC_CHECK(args.width % 8 == 0 && args.x.dtype != DType::kF32);
  const dim3 grid(static_cast<unsigned>(args.n_tokens));
  if (args.order == InputOrder::kPlain) {
    return Launch<&SortRowsKernel>(stream, {.grid = grid, .block = 256}, args);
  }
  SC_CHECK(args.width % kChunkCols == 0);
  const LaunchShape shape{.grid = grid, .block = 128};
  return args.order == InputOrder::kByEight
             ? Launch<&SortChunksKernel<InputOrder::kByEight>>(stream, shape, args)
             : Launch<&SortChunksKernel<InputOrder::kByFour>>(stream, shape, args);
}

cudaError_t CombineExperts(const Stream& stream, const CombineArgs& args) {
  SC_CHECK(args.n_used <= kMaxExperts);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.n_tokens)), .block = 256};
  return WithType(args.y.dtype, [&](auto type) {
    using T = decltype(type);
    return args.width % 8 == 0 ? Launch<&CombineKernel<T, 8>>(stream, shape, args)
                               : Launch<&CombineKernel<T, 1>>(stream, shape, args);
  });
}

}  // namespace stagecoach::kernels::cuda
