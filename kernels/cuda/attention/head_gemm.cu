#include "kernels/cuda/attention/head_gemm.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

struct HeadGemmParams {
  const void *x, *w;
  void* y;
  int32_t n_rows, n_heads, n_outputs, n_inputs, x_dim, y_dim;
};

// A CTA multiplies kTile rows of one head with kTile rows of its matrix; each warp has a quarter of
// the products. Copies of the next inputs overlap with the MMAs.
constexpr int kTile = 64, kStep = 64, kStages = 3;  // kStep: inputs per stage
constexpr int kTileWarps = 4, kTileThreads = kTileWarps * kWarpThreads;
constexpr int kTileRowBytes = kStep * 2, kTileBytes = kTile * kTileRowBytes;
constexpr size_t kTileSharedBytes = size_t{kStages} * 2 * kTileBytes;

// XOR swizzle: eight rows that are read together do not share a bank.
__device__ __forceinline__ int PieceOf(int row, int piece) {
  return row * kTileRowBytes + ((piece ^ (row % 8)) * 16);
}

// Copies inputs [first, first + kStep) of a tile's rows; what is beyond the ends becomes zero.
__device__ __forceinline__ void FetchTile(unsigned char* to, const unsigned char* from,
                                          int64_t row_bytes, int n_rows, int first, int n_inputs) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * 8; i += kTileThreads) {
    const int row = i / 8, piece = i % 8;
    const bool wanted = row < n_rows && first + piece * 8 < n_inputs;
    CopyAsync16(to + PieceOf(row, piece),
                from + (wanted ? row * row_bytes + int64_t{first + piece * 8} * 2 : 0), wanted);
  }
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) HeadGemmTileKernel(const HeadGemmParams p) {
  unsigned char* const shared = DynamicShared();
  LetNextStart();
  WaitForPrevious();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const auto head = static_cast<int32_t>(blockIdx.z);
  const int32_t first_row = static_cast<int32_t>(blockIdx.y) * kTile;
  const int32_t first_output = static_cast<int32_t>(blockIdx.x) * kTile;
  const int n_rows = min(kTile, p.n_rows - first_row);
  const int n_outputs = min(kTile, p.n_outputs - first_output);
  const int64_t x_bytes = int64_t{p.n_heads} * p.x_dim * 2, w_bytes = int64_t{p.n_inputs} * 2;
  const auto* const x =
      static_cast<const unsigned char*>(p.x) + first_row * x_bytes + int64_t{head} * p.x_dim * 2;
  const auto* const w = static_cast<const unsigned char*>(p.w) +
                        (int64_t{head} * p.n_outputs + first_output) * w_bytes;
  const int n_steps = (p.n_inputs + kStep - 1) / kStep;
  const auto fetch = [&](int step) {
    unsigned char* const stage = shared + step % kStages * 2 * kTileBytes;
    if (step < n_steps) {
      FetchTile(stage, x, x_bytes, n_rows, step * kStep, p.n_inputs);
      FetchTile(stage + kTileBytes, w, w_bytes, n_outputs, step * kStep, p.n_inputs);
    }
    CommitCopies();
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step);

  const int row_of_warp = warp / 2 * 32, output_of_warp = warp % 2 * 32;
  const int m = lane / 8, r = lane % 8;
  float sums[2][4][4] = {};  // 16 rows, 8 outputs
  for (int step = 0; step < n_steps; ++step) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    fetch(step + kStages - 1);
    const unsigned char* const rows = shared + step % kStages * 2 * kTileBytes;
    const unsigned char* const weights = rows + kTileBytes;
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      uint32_t b[2][4];
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        LoadMatrices(b[pair],
                     weights + PieceOf(output_of_warp + pair * 16 + m / 2 * 8 + r, 2 * k + m % 2));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (row_of_warp + i * 16 >= n_rows) continue;
        uint32_t a[4];
        LoadMatrices(a, rows + PieceOf(row_of_warp + i * 16 + m % 2 * 8 + r, 2 * k + m / 2));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          Mma<T>(sums[i][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = row_of_warp + i * 16 + j * 8 + lane / 4;
      if (row >= n_rows) continue;
      T* const to = static_cast<T*>(p.y) + (int64_t{first_row + row} * p.n_heads + head) * p.y_dim +
                    first_output;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int output = output_of_warp + n * 8 + lane % 4 * 2;
        if (output >= n_outputs) continue;
        *reinterpret_cast<uint32_t*>(to + output) =
            PackPair<T>(sums[i][n][2 * j], sums[i][n][2 * j + 1]);
      }
    }
  }
}

// For float32, and for rows that are not aligned.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kRows = 8;  // that share each read of a head's weights
constexpr int kMaxInputs = 1024;

// A CTA multiplies kRows rows of one head; each warp computes every kWarps'th output. A lane adds
// every 32nd product, so the order does not depend on the rows.
template <typename T>
__global__ void __launch_bounds__(kThreads) HeadGemmKernel(const HeadGemmParams p) {
  __shared__ float x[kRows][kMaxInputs];
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int32_t head = blockIdx.y, first = static_cast<int32_t>(blockIdx.x) * kRows;
  const int n = min(kRows, p.n_rows - first);
  const auto head_of = [&](int r) { return int64_t{first + r} * p.n_heads + head; };
  for (int r = 0; r < n; ++r) {
    const T* const from = static_cast<const T*>(p.x) + head_of(r) * p.x_dim;
    for (int i = threadIdx.x; i < p.n_inputs; i += kThreads) x[r][i] = ToFloat(from[i]);
  }
  __syncthreads();
  for (int32_t output = warp; output < p.n_outputs; output += kWarps) {
    const T* const w =
        static_cast<const T*>(p.w) + (int64_t{head} * p.n_outputs + output) * p.n_inputs;
    float sums[kRows] = {};
    for (int i = lane; i < p.n_inputs; i += kWarpThreads) {
      const float weight = ToFloat(w[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r < n) sums[r] += weight * x[r][i];
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = WarpSum(sums[r]);
      if (lane == 0 && r < n) {
        static_cast<T*>(p.y)[head_of(r) * p.y_dim + output] = FromFloat<T>(sum);
      }
    }
  }
}

template <typename T>
cudaError_t LaunchTiles(const Stream& stream, const HeadGemmParams& params) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(params.n_outputs, kTile)),
                                       static_cast<unsigned>(CeilDiv(params.n_rows, kTile)),
                                       static_cast<unsigned>(params.n_heads)),
                          .block = kTileThreads,
                          .shared_bytes = kTileSharedBytes};
  return Launch<&HeadGemmTileKernel<T>>(stream, shape, params);
}

}  // namespace

cudaError_t HeadGemm(const Stream& stream, const HeadGemmArgs& args) {
  const Matrix& w = *args.w;
  SC_CHECK(w.parts.empty() && w.cols <= kMaxInputs);
  SC_CHECK(args.x.dtype == w.dtype && args.y.dtype == w.dtype);
  const HeadGemmParams params{.x = args.x.data,
                              .w = w.buffer.data.get(),
                              .y = args.y.data,
                              .n_rows = args.n_rows,
                              .n_heads = args.n_heads,
                              .n_outputs = w.rows / args.n_heads,
                              .n_inputs = w.cols,
                              .x_dim = args.x_dim,
                              .y_dim = args.y_dim};
  const bool aligned = w.cols % 8 == 0 && args.x_dim % 8 == 0 && args.y_dim % 2 == 0;
  if (aligned && w.dtype != DType::kF32) {
    return w.dtype == DType::kBF16 ? LaunchTiles<BF16>(stream, params)
                                   : LaunchTiles<F16>(stream, params);
  }
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_rows, kRows)),
                                       static_cast<unsigned>(args.n_heads)),
                          .block = kThreads};
  return WithType(w.dtype, [&](auto type) {
    return Launch<&HeadGemmKernel<decltype(type)>>(stream, shape, params);
  });
}

}  // namespace stagecoach::kernels::cuda
