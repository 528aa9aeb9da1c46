#include "kernels/cuda/gemm/skinny_gemm.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kOutputs = 16;             // outputs per tile: the MMA tile's size
constexpr int kWarps = 8;                // per CTA; they split the inputs (K dimension)
constexpr int kChunk = 32;               // inputs: 16 bytes per lane of each row
constexpr int kUnroll = 4;               // chunks per warp and turn
constexpr int kTurn = kWarps * kUnroll;  // chunks per CTA and turn
// Turns whose weights are in flight, in shared memory; two CTAs per SM have twice that in flight.
// Fewer where a CTA gets only 99 KB of shared memory (compute capability 8.6, 8.9 and 12.0).
constexpr int kUsualStages = 3, kFewerStages = 2;
constexpr int kPiece = kUnroll * kChunk;  // inputs of a row per warp and turn
constexpr int kPieceBytes = kPiece * 2;
constexpr int kWarpBytes = kOutputs * kPieceBytes;  // per stage
constexpr int kStageBytes = kWarps * kWarpBytes;
constexpr int kBlocksOfMultiprocessor = 2;
// Widest normed row for which two CTAs fit on an SM beside the stages.
constexpr int kMaxNormedWidth = 4096;
// Row groups that run concurrently on one tile of outputs, before the grid moves to the next tile.
// Groups of a matrix then share its weights in L2, and find their own rows there again.
constexpr int kGroupsTogether = 32;

// A float32 row that the kernel normalizes while it loads it.
struct RowNorm {
  const float *x, *weight;
  float eps, weight_offset;
};

struct SkinnyParams {
  const void *x, *w;
  const float* bias;
  void* y;
  int32_t n_rows, rows, cols;
  bool add_to_y;
  Activation activation;  // if kGated
  RowNorm norm;           // if kNormed, instead of x; one row
  GroupedGemmArgs grouped;
};

enum class Kind { kPlain, kGated, kGrouped };

// Weight rows of a tile of kOutputs outputs. If gated: rows of 8 gates and of their 8 up
// projections.
template <typename T, bool kGated>
struct TileRows {
  const T* w;
  int32_t rows, cols;

  __device__ __forceinline__ const T* Row(int tile, int i) const {
    if constexpr (kGated) return w + int64_t{8 * tile + (i < 8 ? i : rows / 2 + i - 8)} * cols;
    // Outputs beyond the last one repeat it; nothing is written for them.
    return w + int64_t{min(tile * kOutputs + i, rows - 1)} * cols;
  }
};

// The order in which a warp takes its pieces of a tile's inputs. The start differs from tile to
// tile: memory is slower if CTAs that start together all read the same columns.
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
// 128 bytes are swapped (XOR swizzle), so that reads of two rows hit different banks.
template <typename T, bool kGated, int kStages>
struct WeightRing {
  static constexpr int kSlots = kPieceBytes / 16;  // 16-byte copies per piece
  TileRows<T, kGated> from;
  WarpTurns turns;
  unsigned char* memory;  // the warp's part of stage 0
  int lane, n_tiles, stride;
  int tile, chunk, turns_left;  // next to fetch; turns left in its tile
  int stage = 0;                // the oldest stage

  static __device__ __forceinline__ int Place(int row, int slot) {
    return row * kPieceBytes + (slot ^ (row % 2 * 4)) * 16;
  }
  // Refills the oldest stage, which the whole warp has read.
  __device__ __forceinline__ void Fetch() {
    __syncwarp();
    if (tile < n_tiles) {
      unsigned char* const to = memory + stage * kStageBytes;
      const int slot = lane % kSlots;
      const bool inside = chunk * kChunk + slot * 8 < from.cols;
      const int64_t at = inside ? int64_t{chunk} * kChunk + slot * 8 : 0;
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
    return *reinterpret_cast<const uint4*>(memory + stage * kStageBytes +
                                           Place(row, 4 * u + lane % 4));
  }
};

// Inputs of one turn for 8 * kRowTiles rows of x: row g of each row tile.
template <typename T, int kRowTiles>
struct Inputs {
  uint4 at[kUnroll][kRowTiles];

  // x: address of the lane's row and offset in each tile; null: no such row.
  __device__ __forceinline__ void Load(const T* const (&x)[kRowTiles], int chunk, int n_chunks) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        at[u][n] = uint4{};
        if (x[n] != nullptr && chunk + u < n_chunks) {
          at[u][n] = *reinterpret_cast<const uint4*>(x[n] + int64_t{chunk + u} * kChunk);
        }
      }
    }
  }
};

// Writes the normalized row (Ops::Norm) to to[width]. sums: [32], shared. Calls WaitForPrevious().
template <typename T>
__device__ __forceinline__ void NormRow(const RowNorm& norm, int width, float* sums, T* to) {
  constexpr int kN = 4, kThreads = kWarps * kWarpThreads;
  constexpr int kItems = kMaxNormedWidth / (kN * kThreads);
  const auto element = [](int item) {
    return (item * kThreads + static_cast<int>(threadIdx.x)) * kN;
  };
  float weight[kItems][kN], x[kItems][kN];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) < width) LoadFloats<kN>(norm.weight + element(item), weight[item]);
  }
  WaitForPrevious();
  float square = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= width) continue;
    LoadFloats<kN>(norm.x + element(item), x[item]);
#pragma unroll
    for (int e = 0; e < kN; ++e) square += x[item][e] * x[item][e];
  }
  const float variance = BlockSum(square, sums) / static_cast<float>(width);
  const float scale = 1.0f / sqrtf(variance + norm.eps);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= width) continue;
    float y[kN];
#pragma unroll
    for (int e = 0; e < kN; ++e) {
      y[e] = x[item][e] * scale * (weight[item][e] + norm.weight_offset);
    }
    StoreFloats<kN>(y, to + element(item));
  }
  __syncthreads();
}

// Two buffers if they fit: then no warp waits until a tile's results are written.
constexpr int PartialsOf(int row_tiles) { return row_tiles == 1 ? 2 : 1; }

// One CTA per group and tile of outputs.
dim3 GroupedGrid(int32_t max_groups, int64_t n_tiles) {
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
template <typename T, typename O, int kRowTiles, Kind kKind, bool kNormed, int kStages>
__global__ void __launch_bounds__(kWarps* kWarpThreads, kRowTiles == 1 && !kNormed ? 3 : 2)
    SkinnyKernel(const SkinnyParams p) {
  constexpr int kRows = 8 * kRowTiles;
  constexpr bool kGrouped = kKind == Kind::kGrouped, kGated = kKind == Kind::kGated;
  constexpr int kPartials = PartialsOf(kRowTiles);
  __shared__ float partials[kPartials][kWarps][kRows][kOutputs + 1];
  LetNextStart();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int g = lane / 4, c = lane % 4;
  const int n_chunks = p.cols / kChunk;
  const int n_tiles = (p.rows + kOutputs - 1) / kOutputs;
  const int first_tile = static_cast<int>(kGrouped ? blockIdx.y : blockIdx.x);
  const int stride = static_cast<int>(kGrouped ? gridDim.y : gridDim.x);

  int32_t first_row = 0, n_rows = p.n_rows;
  const T* w = static_cast<const T*>(p.w);
  if constexpr (kGrouped) {
    WaitForPrevious();
    if (GroupOfBlock() >= *p.grouped.n_groups) return;
    const RowGroup group = p.grouped.groups[GroupOfBlock()];
    w = static_cast<const T*>(p.grouped.weights[group.matrix]);
    first_row = group.first_row;
    n_rows = group.n_rows;
  }
  const WarpTurns turns{.first_chunk = warp * kUnroll, .n_chunks = n_chunks};
  WeightRing<T, kGated, kStages> ring{.from = {w, p.rows, p.cols},
                                      .turns = turns,
                                      .memory = DynamicShared() + warp * kWarpBytes,
                                      .lane = lane,
                                      .n_tiles = turns.Count() > 0 ? n_tiles : 0,
                                      .stride = stride};
  ring.Enter(first_tile);
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) ring.Fetch();
  const T* const x = kNormed ? reinterpret_cast<T*>(DynamicShared() + kStages * kStageBytes)
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
    lane_x[n] = row < n_rows ? x + x_row * p.cols + 8 * c : nullptr;
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

  Inputs<T, kRowTiles> inputs;
  inputs.Load(lane_x, turns.First(first_tile), n_chunks);
  for (int tile = first_tile, buffer = 0; tile < n_tiles; tile += stride) {
    const int output = tile * kWritten + of_tile;
    const bool writes = row < min(n_rows, kRows) && output < width;
    O* const y = static_cast<O*>(p.y) + y_row * width + output;
    float before = 0, bias = 0;
    if constexpr (kKind == Kind::kPlain) {
      if (writes && p.add_to_y) before = ToFloat(*y);
      if (writes && p.bias != nullptr) bias = p.bias[output];
    }
    float sums[kRowTiles][4] = {};  // outputs g and g + 8 of rows 2c and 2c + 1
    int chunk = turns.First(tile);
    for (int left = turns.Count(); left > 0; --left) {
      chunk = left > 1 ? turns.After(chunk) : turns.First(tile + stride);
      Inputs<T, kRowTiles> next;
      next.Load(lane_x, chunk, n_chunks);
      ring.Wait();
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const uint4 low = ring.At(u, 0), high = ring.At(u, 1);
        const uint32_t first[4] = {low.x, high.x, low.y, high.y};
        const uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          Mma<T>(sums[n], first, inputs.at[u][n].x, inputs.at[u][n].y);
          Mma<T>(sums[n], second, inputs.at[u][n].z, inputs.at[u][n].w);
        }
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
    const auto sum_of = [&](int i) {
      float sum = 0;
#pragma unroll
      for (int v = 0; v < kWarps; ++v) sum += partial[v][row][i];
      return sum;
    };
    if (writes) {
      if constexpr (kGated) {
        const float gate = ToFloat(FromFloat<T>(sum_of(of_tile)));
        const float up = ToFloat(FromFloat<T>(sum_of(of_tile + kWritten)));
        *y = FromFloat<O>(ActivatedBy</*kExact=*/false>(p.activation, gate) * up);
      } else {
        *y = FromFloat<O>(before + (sum_of(of_tile) + bias));
      }
    }
    buffer = (buffer + 1) % kPartials;
  }
}

template <typename T, typename O, int kRowTiles, Kind kKind, bool kNormed = false>
cudaError_t LaunchSkinny(const Stream& stream, const SkinnyParams& params) {
  const int64_t n_tiles = CeilDiv(params.rows, kOutputs);
  const int64_t most = int64_t{kBlocksOfMultiprocessor} * stream.n_multiprocessors;
  // Only the device knows the number of groups, so the grid covers the maximum.
  LaunchShape shape{.grid = kKind == Kind::kGrouped
                                ? GroupedGrid(params.grouped.max_groups, n_tiles)
                                : dim3(static_cast<unsigned>(std::min(n_tiles, most))),
                    .block = kWarps * kWarpThreads};
  const auto bytes = [&](int n_stages) {
    return static_cast<size_t>(n_stages) * kStageBytes + (kNormed ? params.cols * sizeof(T) : 0);
  };
  constexpr size_t kStaticBytes =
      size_t{PartialsOf(kRowTiles)} * kWarps * 8 * kRowTiles * (kOutputs + 1) * sizeof(float);
  if (bytes(kUsualStages) + kStaticBytes <= stream.block_shared_bytes) {
    shape.shared_bytes = bytes(kUsualStages);
    return Launch<&SkinnyKernel<T, O, kRowTiles, kKind, kNormed, kUsualStages>>(stream, shape,
                                                                                params);
  }
  shape.shared_bytes = bytes(kFewerStages);
  return Launch<&SkinnyKernel<T, O, kRowTiles, kKind, kNormed, kFewerStages>>(stream, shape,
                                                                              params);
}

// One warp per group and output.
template <typename T, typename O>
__global__ void __launch_bounds__(kWarps* kWarpThreads) PlainGroupedKernel(const SkinnyParams p) {
  LetNextStart();
  WaitForPrevious();
  const GroupedGemmArgs& a = p.grouped;
  if (GroupOfBlock() >= *a.n_groups) return;
  const RowGroup group = a.groups[GroupOfBlock()];
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int output = static_cast<int>(blockIdx.y) * kWarps + warp;
  if (output >= p.rows) return;
  const T* const w = static_cast<const T*>(a.weights[group.matrix]) + int64_t{output} * p.cols;
  for (int32_t row = group.first_row; row < group.first_row + group.n_rows; ++row) {
    const int64_t x_row = a.x_rows != nullptr ? a.x_rows[row] / a.x_divisor : row;
    const T* const x = static_cast<const T*>(p.x) + x_row * p.cols;
    float sum = 0;
    for (int i = lane; i < p.cols; i += kWarpThreads) sum += ToFloat(x[i]) * ToFloat(w[i]);
    sum = WarpSum(sum);
    const int64_t y_row = a.y_rows != nullptr ? a.y_rows[row] : row;
    if (lane == 0) static_cast<O*>(p.y)[y_row * p.rows + output] = FromFloat<O>(sum);
  }
}

}  // namespace

bool HasSkinnyGemm(DType x, DType w, int32_t cols) {
  return x == w && x != DType::kF32 && cols % kChunk == 0;
}

bool HasSkinnyGatedGemm(const GemmArgs& gemm, const ActivationArgs& activation) {
  return activation.gated && activation.clamped.limit == 0 && gemm.bias == nullptr &&
         gemm.n_rows <= kMaxGatedRows && activation.width % 8 == 0 && gemm.w->parts.empty() &&
         gemm.w->rows == 2 * activation.width && activation.out.dtype == gemm.x.dtype &&
         gemm.y.dtype == gemm.x.dtype && HasSkinnyGemm(gemm.x.dtype, gemm.w->dtype, gemm.w->cols);
}

bool HasNormedSkinnyGemm(const NormArgs& norm, const GemmArgs& gemm) {
  return norm.kind != NormKind::kLayerNorm && norm.bias == nullptr && !norm.add_to_out &&
         norm.n_rows == 1 && norm.out.data == gemm.x.data && norm.width == gemm.w->cols &&
         norm.width <= kMaxNormedWidth && norm.x.dtype == DType::kF32 && gemm.bias == nullptr &&
         !gemm.add_to_y && gemm.w->parts.empty() && gemm.y.dtype == gemm.x.dtype &&
         HasSkinnyGemm(gemm.x.dtype, gemm.w->dtype, gemm.w->cols);
}

namespace {

SkinnyParams ToParams(const GemmArgs& args) {
  return {.x = args.x.data,
          .w = args.w->buffer.data.get(),
          .bias = args.bias,
          .y = args.y.data,
          .n_rows = args.n_rows,
          .rows = args.w->rows,
          .cols = args.w->cols,
          .add_to_y = args.add_to_y};
}

SkinnyParams ToParams(const NormArgs& norm, const GemmArgs& gemm) {
  SkinnyParams params = ToParams(gemm);
  params.norm = {.x = norm.x.f32(),
                 .weight = norm.weight,
                 .eps = norm.eps,
                 .weight_offset = norm.kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f};
  return params;
}

template <Kind kKind, bool kNormed>
cudaError_t LaunchFewRows(const Stream& stream, const SkinnyParams& params, DType dtype) {
  return dtype == DType::kBF16 ? LaunchSkinny<BF16, BF16, 1, kKind, kNormed>(stream, params)
                               : LaunchSkinny<F16, F16, 1, kKind, kNormed>(stream, params);
}

}  // namespace

cudaError_t NormedSkinnyGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm) {
  return LaunchFewRows<Kind::kPlain, true>(stream, ToParams(norm, gemm), gemm.x.dtype);
}

cudaError_t SkinnyGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation) {
  SkinnyParams params = ToParams(gemm);
  params.y = activation.out.data;
  params.activation = activation.kind;
  return LaunchFewRows<Kind::kGated, false>(stream, params, gemm.x.dtype);
}

cudaError_t NormedSkinnyGatedGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm,
                                  const ActivationArgs& activation) {
  SkinnyParams params = ToParams(norm, gemm);
  params.y = activation.out.data;
  params.activation = activation.kind;
  return LaunchFewRows<Kind::kGated, true>(stream, params, gemm.x.dtype);
}

cudaError_t SkinnyGemm(const Stream& stream, const GemmArgs& args) {
  SC_CHECK(args.n_rows <= kMaxSkinnyRows);
  const SkinnyParams params = ToParams(args);
  const auto launch = [&]<typename T, typename O>() {
    return args.n_rows <= 8 ? LaunchSkinny<T, O, 1, Kind::kPlain>(stream, params)
                            : LaunchSkinny<T, O, 2, Kind::kPlain>(stream, params);
  };
  const bool to_float = args.y.dtype == DType::kF32;
  SC_CHECK(to_float || args.y.dtype == args.x.dtype);
  if (args.x.dtype == DType::kBF16) {
    return to_float ? launch.template operator()<BF16, float>()
                    : launch.template operator()<BF16, BF16>();
  }
  return to_float ? launch.template operator()<F16, float>()
                  : launch.template operator()<F16, F16>();
}

cudaError_t GroupedGemm(const Stream& stream, const GroupedGemmArgs& args) {
  const SkinnyParams params{
      .x = args.x, .y = args.y.data, .rows = args.rows, .cols = args.cols, .grouped = args};
  const auto launch = [&]<typename T, typename O>() {
    if constexpr (!std::is_same_v<T, float>) {
      if (HasSkinnyGemm(args.dtype, args.dtype, args.cols)) {
        return LaunchSkinny<T, O, 2, Kind::kGrouped>(stream, params);
      }
    }
    const LaunchShape shape{.grid = GroupedGrid(args.max_groups, CeilDiv(args.rows, kWarps)),
                            .block = kWarps * kWarpThreads};
    return Launch<&PlainGroupedKernel<T, O>>(stream, shape, params);
  };
  return WithType(args.dtype, [&](auto type) {
    using T = decltype(type);
    return args.y.dtype == DType::kF32 ? launch.template operator()<T, float>()
                                       : launch.template operator()<T, T>();
  });
}

}  // namespace stagecoach::kernels::cuda
