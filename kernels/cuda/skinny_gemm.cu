#include "common/check.h"
#include "kernels/cuda/activated.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/cuda/skinny_gemm.h"
#include "kernels/cuda/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kOutputs = 16;             // of a block: one tile of the tensor cores
constexpr int kWarps = 8;                // of a block; they share out the inputs
constexpr int kChunk = 32;               // inputs: 16 bytes a lane of each row
constexpr int kUnroll = 4;               // chunks that a warp takes at once
constexpr int kTurn = kWarps * kUnroll;  // chunks that a block takes at once
// Turns whose weights are on their way, in shared memory; two blocks of a multiprocessor together
// have twice that under way.
constexpr int kStages = 3;
constexpr int kLaneBytes = kUnroll * 2 * 16;
constexpr int kStageBytes = kWarps * kWarpThreads * kLaneBytes;
// Of each row of weights, brought to L2 before the input is there, behind what the stages hold.
constexpr int64_t kPrefetchBytes = 2048;

struct SkinnyParams {
  const void *x, *w;
  const float* bias;
  void* y;
  int32_t n_rows, rows, cols;
  bool add_to_y;
  Activation activation;  // kGated
  GroupedGemmArgs grouped;
};

enum class Kind { kPlain, kGated, kGrouped };

// Starts bringing memory to L2; both multiples of 16.
__device__ __forceinline__ void PrefetchToL2(const void* at, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
#else
  static_cast<void>(at);
  static_cast<void>(bytes);
#endif
}

// A lane's weights of a few turns, on their way through shared memory. A lane reads what it copied
// itself, so that nobody waits for anybody.
template <typename T>
struct WeightRing {
  unsigned char* memory;  // the lane's of stage 0
  const T *low, *high;    // its place in the rows g and g + 8
  int first_chunk, n_chunks;

  __device__ __forceinline__ void Fetch(int turn) const {
    const int chunk = first_chunk + turn * kTurn;
    if (chunk < n_chunks) {
      unsigned char* const to = memory + turn % kStages * kStageBytes;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const bool inside = chunk + u < n_chunks;
        const int64_t at = int64_t{inside ? chunk + u : 0} * kChunk;
        CopyAsync16(to + (2 * u) * (16 * kWarpThreads), low + at, inside);
        CopyAsync16(to + (2 * u + 1) * (16 * kWarpThreads), high + at, inside);
      }
    }
    CommitCopies();
  }
  // Rows g and g + 8 of chunk u. After a wait for the turn's copies.
  __device__ __forceinline__ uint4 At(int turn, int u, int half) const {
    return *reinterpret_cast<const uint4*>(memory + turn % kStages * kStageBytes +
                                           (2 * u + half) * (16 * kWarpThreads));
  }
};

// A turn's inputs of 8 * kRowTiles rows: row g of each tile.
template <typename T, int kRowTiles>
struct Inputs {
  uint4 at[kUnroll][kRowTiles];

  // x: of the lane's row and place in each tile, null where there is no such row
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

// Block b computes the outputs 16 b .. 16 b + 15, or where gated 8 gates and what they are for.
// Warp w takes the chunks w * kUnroll .. + kUnroll - 1 of every kTurn: a block reads each row of w
// in long pieces.
template <typename T, typename O, int kRowTiles, Kind kKind>
__global__ void __launch_bounds__(kWarps* kWarpThreads, 2) SkinnyKernel(const SkinnyParams p) {
  constexpr int kRows = 8 * kRowTiles;
  constexpr bool kGrouped = kKind == Kind::kGrouped, kGated = kKind == Kind::kGated;
  __shared__ float partial[kWarps][kRows][kOutputs + 1];
  LetNextStart();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int g = lane / 4, c = lane % 4;
  const int first_output = static_cast<int>(blockIdx.x) * kOutputs;
  const int n_chunks = p.cols / kChunk;

  int32_t first_row = 0, n_rows = p.n_rows;
  const T* w = static_cast<const T*>(p.w);
  if constexpr (kGrouped) {
    WaitForPrevious();
    if (static_cast<int32_t>(blockIdx.y) >= *p.grouped.n_groups) return;
    const RowGroup group = p.grouped.groups[blockIdx.y];
    w = static_cast<const T*>(p.grouped.weights[group.matrix]);
    first_row = group.first_row;
    n_rows = group.n_rows;
  }
  // Outputs past the last repeat it; nothing is written of them.
  const int32_t width = p.rows / 2;
  const int first_gate = first_output / 2;
  const auto row_of = [&](int i) -> int64_t {
    if constexpr (kGated) return first_gate + (i < 8 ? i : width + i - 8);
    return min(first_output + i, p.rows - 1);
  };
  const WeightRing<T> ring{
      .memory = DynamicShared() + warp * (kWarpThreads * kLaneBytes) + lane * 16,
      .low = w + row_of(g) * p.cols + 8 * c,
      .high = w + row_of(g + 8) * p.cols + 8 * c,
      .first_chunk = warp * kUnroll,
      .n_chunks = n_chunks};
#pragma unroll
  for (int turn = 0; turn < kStages; ++turn) ring.Fetch(turn);
  if constexpr (!kGrouped) {
    const int64_t staged = int64_t{kStages} * kTurn * kChunk;
    const int64_t left = (p.cols - staged) * static_cast<int64_t>(sizeof(T));
    if (warp == 0 && lane < kOutputs && left > 0) {
      PrefetchToL2(w + row_of(lane) * p.cols + staged,
                   static_cast<uint32_t>(min(left, kPrefetchBytes)));
    }
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
    lane_x[n] = row < n_rows ? static_cast<const T*>(p.x) + x_row * p.cols + 8 * c : nullptr;
  }
  float sums[kRowTiles][4] = {};  // outputs g and g + 8 of rows 2c and 2c + 1
  Inputs<T, kRowTiles> inputs;
  inputs.Load(lane_x, ring.first_chunk, n_chunks);
  for (int turn = 0; ring.first_chunk + turn * kTurn < n_chunks; ++turn) {
    Inputs<T, kRowTiles> next;
    next.Load(lane_x, ring.first_chunk + (turn + 1) * kTurn, n_chunks);
    WaitForCopies<kStages - 1>();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint4 low = ring.At(turn, u, 0), high = ring.At(turn, u, 1);
      const uint32_t first[4] = {low.x, high.x, low.y, high.y};
      const uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        Mma<T>(sums[n], first, inputs.at[u][n].x, inputs.at[u][n].y);
        Mma<T>(sums[n], second, inputs.at[u][n].z, inputs.at[u][n].w);
      }
    }
    ring.Fetch(turn + kStages);
    inputs = next;
  }
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partial[warp][8 * n + 2 * c + i % 2][g + i / 2 * 8] = sums[n][i];
    }
  }
  __syncthreads();
  const auto sum_of = [&](int row, int output) {
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kWarps; ++v) sum += partial[v][row][output];
    return sum;
  };
  if constexpr (kGated) {
    constexpr int kGates = kOutputs / 2;
    const int row = static_cast<int>(threadIdx.x) / kGates;
    const int gate = static_cast<int>(threadIdx.x) % kGates;
    if (row >= n_rows) return;
    const float rounded_gate = ToFloat(FromFloat<T>(sum_of(row, gate)));
    const float rounded_up = ToFloat(FromFloat<T>(sum_of(row, gate + kGates)));
    static_cast<O*>(p.y)[int64_t{row} * width + first_gate + gate] =
        FromFloat<O>(ActivatedBy</*kExact=*/false>(p.activation, rounded_gate) * rounded_up);
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kOutputs; i += kWarps * kWarpThreads) {
    const int row = i / kOutputs, output = first_output + i % kOutputs;
    if (row >= n_rows || output >= p.rows) continue;
    float sum = sum_of(row, i % kOutputs);
    if (p.bias != nullptr) sum += p.bias[output];
    int64_t y_row = first_row + row;
    if constexpr (kGrouped) {
      if (p.grouped.y_rows != nullptr) y_row = p.grouped.y_rows[y_row];
    }
    O& y = static_cast<O*>(p.y)[y_row * p.rows + output];
    y = FromFloat<O>(p.add_to_y ? ToFloat(y) + sum : sum);
  }
}

template <typename T, typename O, int kRowTiles, Kind kKind>
cudaError_t LaunchSkinny(const Stream& stream, const SkinnyParams& params, int32_t n_groups) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.rows, kOutputs)),
                                       static_cast<unsigned>(n_groups)),
                          .block = kWarps * kWarpThreads,
                          .shared_bytes = kStages * kStageBytes};
  return Launch<&SkinnyKernel<T, O, kRowTiles, kKind>>(stream, shape, params);
}

// A warp an output of a row.
template <typename T, typename O>
__global__ void __launch_bounds__(kWarps* kWarpThreads) PlainGroupedKernel(const SkinnyParams p) {
  LetNextStart();
  WaitForPrevious();
  const GroupedGemmArgs& a = p.grouped;
  if (static_cast<int32_t>(blockIdx.y) >= *a.n_groups) return;
  const RowGroup group = a.groups[blockIdx.y];
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int output = static_cast<int>(blockIdx.x) * kWarps + warp;
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
  return activation.gated && gemm.bias == nullptr && gemm.n_rows <= kMaxGatedRows &&
         activation.width % 8 == 0 && gemm.w->rows == 2 * activation.width &&
         activation.out.dtype == gemm.x.dtype &&
         HasSkinnyGemm(gemm.x.dtype, gemm.w->dtype, gemm.w->cols);
}

cudaError_t SkinnyGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation) {
  const SkinnyParams params{.x = gemm.x.data,
                            .w = gemm.w->buffer.data.get(),
                            .y = activation.out.data,
                            .n_rows = gemm.n_rows,
                            .rows = gemm.w->rows,
                            .cols = gemm.w->cols,
                            .activation = activation.kind};
  const auto launch = [&](auto type) {
    using T = decltype(type);
    return LaunchSkinny<T, T, 1, Kind::kGated>(stream, params, 1);
  };
  return gemm.x.dtype == DType::kBF16 ? launch(BF16{}) : launch(F16{});
}

cudaError_t SkinnyGemm(const Stream& stream, const GemmArgs& args) {
  SC_CHECK(args.n_rows <= kMaxSkinnyRows);
  const SkinnyParams params{.x = args.x.data,
                            .w = args.w->buffer.data.get(),
                            .bias = args.bias,
                            .y = args.y.data,
                            .n_rows = args.n_rows,
                            .rows = args.w->rows,
                            .cols = args.w->cols,
                            .add_to_y = args.add_to_y};
  const auto launch = [&]<typename T, typename O>() {
    return args.n_rows <= 8 ? LaunchSkinny<T, O, 1, Kind::kPlain>(stream, params, 1)
                            : LaunchSkinny<T, O, 2, Kind::kPlain>(stream, params, 1);
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
        return LaunchSkinny<T, O, 2, Kind::kGrouped>(stream, params, args.max_groups);
      }
    }
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.rows, kWarps)),
                                         static_cast<unsigned>(args.max_groups)),
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
