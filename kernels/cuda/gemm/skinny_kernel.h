// The kernel of skinny_gemm.h, also for FP8 weights (fp8/fp8_skinny.h). A source file for each type
// includes it.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"
#include "kernels/cuda/fp8/fp8_codes.h"
#include "kernels/cuda/gemm/row_norm_kernel.h"
#include "kernels/cuda/gemm/skinny_gemm.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kOutputs = 16;  // outputs per tile: the MMA tile's size
constexpr int kWarps = 8;     // per CTA; they split the inputs (K dimension)
static_assert(kWarps * kWarpThreads == kRowNormThreads);
constexpr int kBlocksOfMultiprocessor = 2;

template <typename W>
inline constexpr bool kIsFp8 = sizeof(W) == 1;

// How weights of type W are read.
template <typename W>
struct Pieces {
  static constexpr int kLaneInputs = 16 / sizeof(W);  // 16 bytes of a row
  static constexpr int kChunk = 4 * kLaneInputs;      // inputs of four lanes
  // Chunks per warp and turn, for 128 inputs of a row. With more FP8 weights, their inputs would
  // take too many registers.
  static constexpr int kUnroll = 128 / kChunk;
  static constexpr int kTurn = kWarps * kUnroll;  // chunks per CTA and turn
  static constexpr int kPieceBytes = kUnroll * 64;
  static constexpr int kWarpBytes = kOutputs * kPieceBytes;  // per stage
  static constexpr int kStageBytes = kWarps * kWarpBytes;
  // Turns whose weights are in flight, in shared memory; two CTAs per SM have twice that in flight.
  // Fewer where a CTA gets only 99 KB of shared memory (compute capability 8.6, 8.9 and 12.0).
  static constexpr int kUsualStages = kIsFp8<W> ? 6 : 3, kFewerStages = kIsFp8<W> ? 5 : 2;
};
// Row groups that run concurrently on one tile of outputs, before the grid moves to the next tile.
// Groups of a matrix then share its weights in L2, and find their own rows there again.
constexpr int kGroupsTogether = 32;

struct SkinnyParams {
  const void *x, *w;
  const float* scales;  // [rows], of FP8 weights
  const float* bias;
  void* y;
  int32_t n_rows, rows, cols;
  int32_t y_stride;  // elements
  bool add_to_y;
  Activation activation;  // if kGated
  RowNorm norm;           // if kNormed, instead of x; one row
  GroupedGemmArgs grouped;
};

enum class Kind { kPlain, kGated, kGrouped };

// Weight rows of a tile of kOutputs outputs. If gated: rows of 8 gates and of their 8 up
// projections.
template <typename W, bool kGated>
struct TileRows {
  const W* w;
  int32_t rows, cols;

  __device__ __forceinline__ int Index(int tile, int i) const {
    if constexpr (kGated) return 8 * tile + (i < 8 ? i : rows / 2 + i - 8);
    // Outputs beyond the last one repeat it; nothing is written for them.
    return min(tile * kOutputs + i, rows - 1);
  }
  __device__ __forceinline__ const W* Row(int tile, int i) const {
    return w + int64_t{Index(tile, i)} * cols;
  }
};

// The order in which a warp takes its pieces of a tile's inputs. The start differs from tile to
// tile: memory is slower if CTAs that start together all read the same columns.
template <int kTurn>
struct WarpTurns {
  int first_chunk, n_chunks;

  __device__ __forceinline__ int Count() const {
    return max(0, (n_chunks - first_chunk + kTurn - 1) / kTurn);
  }
  __device__ __forceinline__ int First(int tile) const {
    return first_chunk + tile % max(1, Count()) * kTurn;
  }
  __device__ __forceinline__ int After(int chunk) const {
    return chunk + kTurn < n_chunks ? chunk + kTurn : first_chunk;
  }
};

// Ring of a warp's weights for the next turns, in shared memory (cp.async). Each warp has its own
// ring, so that warps do not wait for each other. Half a warp copies the piece of one row, because
// whole cache lines arrive faster than the same bytes in half lines. In odd rows the halves of each
// 128 bytes are swapped (XOR swizzle), so that reads of two rows hit different banks. Turns:
// WarpTurns, or what has another start.
template <typename W, bool kGated, int kStages, typename Turns = WarpTurns<Pieces<W>::kTurn>>
struct WeightRing {
  using P = Pieces<W>;
  static constexpr int kSlots = P::kPieceBytes / 16;  // 16-byte copies per piece
  TileRows<W, kGated> from;
  Turns turns;
  unsigned char* memory;  // the warp's part of stage 0
  int lane, n_tiles, stride;
  int tile, chunk, turns_left;  // next to fetch; turns left in its tile
  int stage = 0;                // the oldest stage

  static __device__ __forceinline__ int Place(int row, int slot) {
    return row * P::kPieceBytes + (slot ^ (row % 2 * 4)) * 16;
  }
  // Refills the oldest stage, which the whole warp has read.
  __device__ __forceinline__ void Fetch() {
    __syncwarp();
    if (tile < n_tiles) {
      unsigned char* const to = memory + stage * P::kStageBytes;
      const int slot = lane % kSlots;
      const int first = chunk * P::kChunk + slot * P::kLaneInputs;
      const bool inside = first < from.cols;
      const int64_t at = inside ? first : 0;
#pragma unroll
      for (int i = 0; i < kOutputs; i += kWarpThreads / kSlots) {
        const int row = i + lane / kSlots;
        CopyAsync16(to + Place(row, slot), from.Row(tile, row) + at, inside);
      }
      chunk = turns.After(chunk);
      if (--turns_left == 0) Enter(tile + stride);
    }
    CommitCopies();
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  __device__ __forceinline__ void Enter(int next_tile) {
    tile = next_tile;
    chunk = turns.First(tile);
    turns_left = turns.Count();
  }
  __device__ __forceinline__ void Wait() const {
    WaitForCopies<kStages - 1>();
    __syncwarp();
  }
  // Rows g and g + 8 of chunk u of the oldest turn. Call after Wait.
  __device__ __forceinline__ uint4 At(int u, int half) const {
    const int row = lane / 4 + 8 * half;
    return *reinterpret_cast<const uint4*>(memory + stage * P::kStageBytes +
                                           Place(row, 4 * u + lane % 4));
  }
};

// Inputs of one turn for 8 * kRowTiles rows of x: row g of each row tile.
template <typename W, typename T, int kRowTiles>
struct Inputs {
  using P = Pieces<W>;
  static constexpr int kWords = sizeof(T) / sizeof(W);  // of 16 bytes, per lane and chunk
  uint4 at[P::kUnroll][kWords][kRowTiles];

  // x: address of the lane's row and offset in each tile; null: no such row.
  __device__ __forceinline__ void Load(const T* const (&x)[kRowTiles], int chunk, int n_chunks) {
#pragma unroll
    for (int u = 0; u < P::kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          at[u][i][n] = uint4{};
          if (x[n] != nullptr && chunk + u < n_chunks) {
            at[u][i][n] =
                *reinterpret_cast<const uint4*>(x[n] + int64_t{chunk + u} * P::kChunk + 8 * i);
          }
        }
      }
    }
  }
};

// Adds the products of a chunk; low, high: the lane's weights of outputs g and g + 8.
template <typename W, typename T, int kRowTiles, int kWords>
__device__ __forceinline__ void MultiplyChunk(const uint4& low, const uint4& high,
                                              const uint4 (&x)[kWords][kRowTiles],
                                              float (&sums)[kRowTiles][4]) {
  if constexpr (kIsFp8<W>) {
    const uint32_t of_g[4] = {low.x, low.y, low.z, low.w};
    const uint32_t of_g8[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t a[4];
      Fp8Pairs<T>(of_g[i], a[0], a[2]);
      Fp8Pairs<T>(of_g8[i], a[1], a[3]);
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        const uint4& b = x[i / 2][n];
        Mma<T>(sums[n], a, i % 2 == 0 ? b.x : b.z, i % 2 == 0 ? b.y : b.w);
      }
    }
  } else {
    const uint32_t first[4] = {low.x, high.x, low.y, high.y};
    const uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      Mma<T>(sums[n], first, x[0][n].x, x[0][n].y);
      Mma<T>(sums[n], second, x[0][n].z, x[0][n].w);
    }
  }
}

// Two buffers if they fit: then no warp waits until a tile's results are written.
constexpr int PartialsOf(int row_tiles) { return row_tiles == 1 ? 2 : 1; }

// One CTA per group and tile of outputs.
inline dim3 GroupedGrid(int32_t max_groups, int64_t n_tiles) {
  const int64_t together = std::min(max_groups, kGroupsTogether);
  return dim3(static_cast<unsigned>(together), static_cast<unsigned>(n_tiles),
              static_cast<unsigned>(together == 0 ? 0 : CeilDiv(max_groups, together)));
}
__device__ __forceinline__ int32_t GroupOfBlock() {
  return static_cast<int32_t>(blockIdx.z * gridDim.x + blockIdx.x);
}

// A CTA takes tiles with a stride of the grid size and fetches the next tile's weights while it
// finishes one. Warp w takes chunks w * kUnroll .. + kUnroll - 1 of every kTurn, so that the CTA
// reads each row of w in long pieces. With one row tile, the register limit lets two CTAs fit
// beside one CTA of the decode attention kernel.
template <typename W, typename T, typename O, int kRowTiles, Kind kKind, bool kNormed, int kStages>
__global__ void __launch_bounds__(kWarps* kWarpThreads, kRowTiles == 1 && !kNormed ? 3 : 2)
    SkinnyKernel(const SkinnyParams p) {
  using P = Pieces<W>;
  constexpr int kRows = 8 * kRowTiles;
  constexpr bool kGrouped = kKind == Kind::kGrouped, kGated = kKind == Kind::kGated;
  constexpr int kPartials = PartialsOf(kRowTiles);
  __shared__ float partials[kPartials][kWarps][kRows][kOutputs + 1];
  LetNextStart();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int g = lane / 4, c = lane % 4;
  const int n_chunks = p.cols / P::kChunk;
  const int n_tiles = (p.rows + kOutputs - 1) / kOutputs;
  const int first_tile = static_cast<int>(blockIdx.y);
  const int stride = static_cast<int>(gridDim.y);

  int32_t first_row = static_cast<int32_t>(blockIdx.x) * kRows, n_rows = p.n_rows - first_row;
  const W* w = static_cast<const W*>(p.w);
  if constexpr (kGrouped) {
    WaitForPrevious();
    if (GroupOfBlock() >= *p.grouped.n_groups) return;
    const RowGroup group = p.grouped.groups[GroupOfBlock()];
    w = static_cast<const W*>(p.grouped.weights[group.matrix]);
    first_row = group.first_row;
    n_rows = group.n_rows;
  }
  const WarpTurns<P::kTurn> turns{.first_chunk = warp * P::kUnroll, .n_chunks = n_chunks};
  WeightRing<W, kGated, kStages> ring{.from = {w, p.rows, p.cols},
                                      .turns = turns,
                                      .memory = DynamicShared() + warp * P::kWarpBytes,
                                      .lane = lane,
                                      .n_tiles = turns.Count() > 0 ? n_tiles : 0,
                                      .stride = stride};
  ring.Enter(first_tile);
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) ring.Fetch();
  const T* const x = kNormed ? reinterpret_cast<T*>(DynamicShared() + kStages * P::kStageBytes)
                             : static_cast<const T*>(p.x);
  if constexpr (kNormed) {
    NormRow(p.norm, p.cols, &partials[0][0][0][0], const_cast<T*>(x));
  } else if constexpr (!kGrouped) {
    WaitForPrevious();
  }

  const T* lane_x[kRowTiles];
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    const int row = 8 * n + g;
    int64_t x_row = first_row + row;
    if constexpr (kGrouped) {
      if (row < n_rows && p.grouped.x_rows != nullptr) {
        x_row = p.grouped.x_rows[x_row] / p.grouped.x_divisor;
      }
    }
    lane_x[n] = row < n_rows ? x + x_row * p.cols + P::kLaneInputs * c : nullptr;
  }

  // The outputs of a tile that this thread writes.
  constexpr int kWritten = kGated ? kOutputs / 2 : kOutputs;  // outputs per row
  static_assert(kRows * kOutputs <= kWarps * kWarpThreads);
  const int row = static_cast<int>(threadIdx.x) / kWritten;
  const int of_tile = static_cast<int>(threadIdx.x) % kWritten;
  const int32_t width = kGated ? p.rows / 2 : p.rows;
  int64_t y_row = first_row + row;
  if constexpr (kGrouped) {
    if (row < n_rows && p.grouped.y_rows != nullptr) y_row = p.grouped.y_rows[y_row];
  }

  Inputs<W, T, kRowTiles> inputs;
  inputs.Load(lane_x, turns.First(first_tile), n_chunks);
  for (int tile = first_tile, buffer = 0; tile < n_tiles; tile += stride) {
    const int output = tile * kWritten + of_tile;
    const bool writes = row < min(n_rows, kRows) && output < width;
    O* const y = static_cast<O*>(p.y) + y_row * p.y_stride + output;
    float before = 0, bias = 0, scale = 1, up_scale = 1;
    if constexpr (kIsFp8<W>) {
      if (writes) scale = p.scales[output];
      if (writes && kGated) up_scale = p.scales[width + output];
    }
    if constexpr (kKind == Kind::kPlain) {
      if (writes && p.add_to_y) before = ToFloat(*y);
      if (writes && p.bias != nullptr) bias = p.bias[output];
    }
    float sums[kRowTiles][4] = {};  // outputs g and g + 8 of rows 2c and 2c + 1
    int chunk = turns.First(tile);
    for (int left = turns.Count(); left > 0; --left) {
      chunk = left > 1 ? turns.After(chunk) : turns.First(tile + stride);
      Inputs<W, T, kRowTiles> next;
      next.Load(lane_x, chunk, n_chunks);
      ring.Wait();
#pragma unroll
      for (int u = 0; u < P::kUnroll; ++u) {
        MultiplyChunk<W, T>(ring.At(u, 0), ring.At(u, 1), inputs.at[u], sums);
      }
      ring.Fetch();
      inputs = next;
    }
    auto& partial = partials[buffer];
    if (kPartials == 1 && tile != first_tile) __syncthreads();
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][8 * n + 2 * c + i % 2][g + i / 2 * 8] = sums[n][i];
      }
    }
    __syncthreads();
    const auto sum_of = [&](int i, float scale_of_row) {
      float sum = 0;
#pragma unroll
      for (int v = 0; v < kWarps; ++v) sum += partial[v][row][i];
      return kIsFp8<W> ? RoundedProduct(sum, scale_of_row) : sum;
    };
    if (writes) {
      if constexpr (kGated) {
        const float gate = ToFloat(FromFloat<T>(sum_of(of_tile, scale)));
        const float up = ToFloat(FromFloat<T>(sum_of(of_tile + kWritten, up_scale)));
        *y = FromFloat<O>(ActivatedBy</*kExact=*/false>(p.activation, gate) * up);
      } else {
        *y = FromFloat<O>(before + (sum_of(of_tile, scale) + bias));
      }
    }
    buffer = (buffer + 1) % kPartials;
  }
}

template <typename W, typename T, typename O, int kRowTiles, Kind kKind, bool kNormed = false>
cudaError_t LaunchSkinny(const Stream& stream, const SkinnyParams& params) {
  using P = Pieces<W>;
  const int64_t n_tiles = CeilDiv(params.rows, kOutputs);
  const int64_t n_groups = CeilDiv(params.n_rows, 8 * kRowTiles);
  const int64_t most = int64_t{kBlocksOfMultiprocessor} * stream.n_multiprocessors;
  // Only the device knows the number of groups, so the grid covers the maximum.
  LaunchShape shape{
      .grid = kKind == Kind::kGrouped
                  ? GroupedGrid(params.grouped.max_groups, n_tiles)
                  // Rows that run together share a tile's weights in L2.
                  : dim3(static_cast<unsigned>(n_groups),
                         static_cast<unsigned>(std::min(n_tiles, CeilDiv(most, n_groups)))),
      .block = kWarps * kWarpThreads};
  const auto bytes = [&](int n_stages) {
    return static_cast<size_t>(n_stages) * P::kStageBytes + (kNormed ? params.cols * sizeof(T) : 0);
  };
  constexpr size_t kStaticBytes =
      size_t{PartialsOf(kRowTiles)} * kWarps * 8 * kRowTiles * (kOutputs + 1) * sizeof(float);
  if (bytes(P::kUsualStages) + kStaticBytes <= stream.block_shared_bytes) {
    shape.shared_bytes = bytes(P::kUsualStages);
    return Launch<&SkinnyKernel<W, T, O, kRowTiles, kKind, kNormed, P::kUsualStages>>(stream, shape,
                                                                                      params);
  }
  shape.shared_bytes = bytes(P::kFewerStages);
  return Launch<&SkinnyKernel<W, T, O, kRowTiles, kKind, kNormed, P::kFewerStages>>(stream, shape,
                                                                                    params);
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
