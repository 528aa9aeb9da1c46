#include "kernels/cuda/recurrent/gates.h"

#include <type_traits>

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/elementwise/activated.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 4;  // elements per thread, if the width allows it

// One CTA per row and kThreads pieces of it.
LaunchShape ShapeFor(int32_t n_rows, int64_t n_pieces) {
  return {.grid = dim3(static_cast<unsigned>(n_rows),
                       static_cast<unsigned>(CeilDiv(n_pieces, kThreads))),
          .block = kThreads};
}
__device__ __forceinline__ int32_t Piece() {
  return static_cast<int32_t>(blockIdx.y * blockDim.x + threadIdx.x);
}

struct SplitParams {
  const float* projected;
  void* qkv;
  float* gate;
  int32_t n_heads, n_kv_heads, head_dim;
};

template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) SplitGateKernel(const SplitParams p) {
  LetNextStart();
  WaitForPrevious();
  const int32_t width = (2 * p.n_heads + 2 * p.n_kv_heads) * p.head_dim;
  const int32_t i = Piece() * kN;
  if (i >= width) return;
  const int64_t row = blockIdx.x;
  float values[kN];
  LoadFloats<kN>(p.projected + row * width + i, values);
  const int32_t q_width = p.n_heads * p.head_dim;
  T* const qkv = static_cast<T*>(p.qkv) + row * (width - q_width);
  // q and gate of each head, then k and v.
  const int32_t half = i / p.head_dim;
  if (half >= 2 * p.n_heads) {
    StoreFloats<kN>(values, qkv + i - q_width);
  } else if (half % 2 == 0) {
    StoreFloats<kN>(values, qkv + half / 2 * p.head_dim + i % p.head_dim);
  } else {
    StoreFloats<kN>(values, p.gate + row * q_width + half / 2 * p.head_dim + i % p.head_dim);
  }
}

struct SigmoidParams {
  void* x;
  const float* gate;
  const int32_t* chosen;
  int32_t width, gate_width;
  bool by_row;
};

template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) SigmoidGateKernel(const SigmoidParams p) {
  constexpr bool kExact = std::is_same_v<T, float>;
  LetNextStart();
  WaitForPrevious();
  const int32_t i = Piece() * kN;
  if (i >= p.width) return;
  const int64_t row = blockIdx.x;
  T* const x = static_cast<T*>(p.x) + row * p.width + i;
  float values[kN], gate[kN];
  LoadFloats<kN>(x, values);
  if (p.by_row) {
    const float of_row = p.gate[row * p.gate_width + (p.chosen != nullptr ? p.chosen[row] : 0)];
#pragma unroll
    for (int e = 0; e < kN; ++e) gate[e] = of_row;
  } else {
    LoadFloats<kN>(p.gate + row * p.width + i, gate);
  }
#pragma unroll
  for (int e = 0; e < kN; ++e) values[e] *= Sigmoid<kExact>(gate[e]);
  StoreFloats<kN>(values, x);
}

}  // namespace

cudaError_t SplitGate(const Stream& stream, const SplitGateArgs& args) {
  const SplitParams params{.projected = args.projected,
                           .qkv = args.qkv.data,
                           .gate = args.gate,
                           .n_heads = args.n_heads,
                           .n_kv_heads = args.n_kv_heads,
                           .head_dim = args.head_dim};
  const int64_t width = int64_t{2} * (args.n_heads + args.n_kv_heads) * args.head_dim;
  return WithType(args.qkv.dtype, [&](auto type) {
    using T = decltype(type);
    return args.head_dim % kWide == 0
               ? Launch<&SplitGateKernel<T, kWide>>(stream, ShapeFor(args.n_tokens, width / kWide),
                                                    params)
               : Launch<&SplitGateKernel<T, 1>>(stream, ShapeFor(args.n_tokens, width), params);
  });
}

cudaError_t SigmoidGate(const Stream& stream, const SigmoidGateArgs& args) {
  SC_CHECK(args.is_by_row() || args.gate_width == args.width);
  const SigmoidParams params{.x = args.x.data,
                             .gate = args.gate,
                             .chosen = args.chosen,
                             .width = args.width,
                             .gate_width = args.gate_width,
                             .by_row = args.is_by_row()};
  return WithType(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    return args.width % kWide == 0 ? Launch<&SigmoidGateKernel<T, kWide>>(
                                         stream, ShapeFor(args.n_rows, args.width / kWide), params)
                                   : Launch<&SigmoidGateKernel<T, 1>>(
                                         stream, ShapeFor(args.n_rows, args.width), params);
  });
}

}  // namespace stagecoach::kernels::cuda
