#include "common/check.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/skinny_gemm.h"
#include "kernels/cuda/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kOutputs = 16;  // of a block: one tile of the tensor cores
constexpr int kWarps = 8;     // of a block; they share out the inputs
constexpr int kChunk = 32;    // inputs: 16 bytes a lane of each row
constexpr int kUnroll = 4;    // chunks that a warp reads at once

struct SkinnyParams {
  const void *x, *w;
  const float* bias;
  void* y;
  int32_t n_rows, rows, cols;
  bool add_to_y;
  int32_t prefetch_bytes;  // of the block's weights, brought to L2 before the input is there
  GroupedGemmArgs grouped;
};

// Starts bringing memory to L2; both multiples of 16.
__device__ __forceinline__ void PrefetchToL2(const void* at, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
#else
  static_cast<void>(at);
  static_cast<void>(bytes);
#endif
}

// A block's 16 outputs of 8 * kRowTiles rows. Warp w takes the chunks w * kUnroll .. + kUnroll - 1
// of every kWarps * kUnroll: a block reads each row of w in long pieces.
template <typename T, int kRowTiles>
struct Block {
  uint4 weights[kUnroll][2];         // rows g and g + 8
  uint4 inputs[kUnroll][kRowTiles];  // row g of each tile
  float sums[kRowTiles][4] = {};     // outputs g and g + 8 of rows 2c and 2c + 1

  // w: of the lane's row and place; stride: from row g to g + 8
  __device__ __forceinline__ void LoadWeights(const T* w, int64_t stride, int chunk, int n_chunks) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const bool inside = chunk + u < n_chunks;
      const T* const at = w + int64_t{inside ? chunk + u : 0} * kChunk;
      weights[u][0] = LoadConstantOnce(at);
      weights[u][1] = LoadConstantOnce(at + stride);
      if (!inside) weights[u][0] = weights[u][1] = uint4{};
    }
  }
  // x: of the lane's row and place in each tile, null where there is no such row
  __device__ __forceinline__ void LoadInputs(const T* const (&x)[kRowTiles], int chunk,
                                             int n_chunks) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        const bool inside = x[n] != nullptr && chunk + u < n_chunks;
        inputs[u][n] = uint4{};
        if (inside) {
          inputs[u][n] = *reinterpret_cast<const uint4*>(x[n] + int64_t{chunk + u} * kChunk);
        }
      }
    }
  }
  __device__ __forceinline__ void Multiply() {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint4 low = weights[u][0], high = weights[u][1];
      const uint32_t first[4] = {low.x, high.x, low.y, high.y};
      const uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        Mma<T>(sums[n], first, inputs[u][n].x, inputs[u][n].y);
        Mma<T>(sums[n], second, inputs[u][n].z, inputs[u][n].w);
      }
    }
  }
};

template <typename T, typename O, int kRowTiles, bool kGrouped>
__global__ void __launch_bounds__(kWarps* kWarpThreads, 2) SkinnyKernel(const SkinnyParams p) {
  constexpr int kRows = 8 * kRowTiles;
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
  const int64_t low = min(first_output + g, p.rows - 1);
  const int64_t high = min(first_output + g + 8, p.rows - 1);
  const T* const lane_w = w + low * p.cols + 8 * c;
  const int64_t stride = (high - low) * p.cols;

  Block<T, kRowTiles> block;
  int chunk = warp * kUnroll;
  block.LoadWeights(lane_w, stride, chunk, n_chunks);
  if constexpr (!kGrouped) {
    if (lane == 0 && p.prefetch_bytes > 0) {
      const int64_t bytes = min(int64_t{kOutputs}, int64_t{p.rows} - first_output) * p.cols *
                            static_cast<int64_t>(sizeof(T)) / kWarps / 16 * 16;
      const int64_t some = min(bytes, int64_t{p.prefetch_bytes} / kWarps / 16 * 16);
      PrefetchToL2(
          reinterpret_cast<const unsigned char*>(w + int64_t{first_output} * p.cols) + bytes * warp,
          static_cast<uint32_t>(some));
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
  for (; chunk < n_chunks;) {
    block.LoadInputs(lane_x, chunk, n_chunks);
    Block<T, kRowTiles> now = block;
    chunk += kWarps * kUnroll;
    if (chunk < n_chunks) block.LoadWeights(lane_w, stride, chunk, n_chunks);
    now.Multiply();
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) block.sums[n][i] = now.sums[n][i];
    }
  }
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partial[warp][8 * n + 2 * c + i % 2][g + i / 2 * 8] = block.sums[n][i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kOutputs; i += kWarps * kWarpThreads) {
    const int row = i / kOutputs, output = first_output + i % kOutputs;
    if (row >= n_rows || output >= p.rows) continue;
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kWarps; ++v) sum += partial[v][row][i % kOutputs];
    if (p.bias != nullptr) sum += p.bias[output];
    int64_t y_row = first_row + row;
    if constexpr (kGrouped) {
      if (p.grouped.y_rows != nullptr) y_row = p.grouped.y_rows[y_row];
    }
    O& y = static_cast<O*>(p.y)[y_row * p.rows + output];
    y = FromFloat<O>(p.add_to_y ? ToFloat(y) + sum : sum);
  }
}

template <typename T, typename O, int kRowTiles, bool kGrouped>
cudaError_t LaunchSkinny(const Stream& stream, const SkinnyParams& params, int32_t n_groups) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.rows, kOutputs)),
                                       static_cast<unsigned>(n_groups)),
                          .block = kWarps * kWarpThreads};
  return Launch<&SkinnyKernel<T, O, kRowTiles, kGrouped>>(stream, shape, params);
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

cudaError_t SkinnyGemm(const Stream& stream, const GemmArgs& args) {
  SC_CHECK(args.n_rows <= kMaxSkinnyRows);
  const SkinnyParams params{.x = args.x.data,
                            .w = args.w->buffer.data.get(),
                            .bias = args.bias,
                            .y = args.y.data,
                            .n_rows = args.n_rows,
                            .rows = args.w->rows,
                            .cols = args.w->cols,
                            .add_to_y = args.add_to_y,
                            .prefetch_bytes = 64 << 10};
  const auto launch = [&]<typename T, typename O>() {
    return args.n_rows <= 8 ? LaunchSkinny<T, O, 1, false>(stream, params, 1)
                            : LaunchSkinny<T, O, 2, false>(stream, params, 1);
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
        return LaunchSkinny<T, O, 2, true>(stream, params, args.max_groups);
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
