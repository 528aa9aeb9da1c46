#include "kernels/cuda/elementwise/norm.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWide = 4;  // elements per load and thread, if the width allows it
constexpr int kMaxThreads = 1024;
// Threads per CTA for rows that are not very wide. Then several CTAs share an SM and overlap their
// loads.
constexpr int kFewThreads = 256;

struct NormParams {
  const void* x;
  const float *weight, *bias;
  void* out;
  int32_t width;
  NormKind kind;
  float eps;
  bool add_to_out;
};

// A row's elements stay in registers between the passes: kItems pieces of kN per thread. Piece i of
// thread t starts at (i * threads + t) * kN.
template <typename X, typename O, int kN, int kItems>
__global__ void __launch_bounds__(kMaxThreads) NormKernel(const NormParams p) {
  __shared__ float sums[2][kWarpThreads];
  LetNextStart();
  const auto element = [](int item) {
    return (item * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kN;
  };
  // Safe before WaitForPrevious(): no kernel writes the weights.
  float weight[kItems][kN];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) < p.width) LoadFloats<kN>(p.weight + element(item), weight[item]);
  }
  WaitForPrevious();
  const int64_t row = int64_t{blockIdx.x} * p.width;
  float x[kItems][kN];
  float sum = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= p.width) continue;
    LoadFloats<kN>(static_cast<const X*>(p.x) + row + element(item), x[item]);
#pragma unroll
    for (int e = 0; e < kN; ++e) sum += x[item][e];
  }
  const bool centered = p.kind == NormKind::kLayerNorm;
  const float mean = centered ? BlockSum(sum, sums[0]) / static_cast<float>(p.width) : 0.0f;
  float square = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= p.width) continue;
#pragma unroll
    for (int e = 0; e < kN; ++e) square += (x[item][e] - mean) * (x[item][e] - mean);
  }
  const float variance = BlockSum(square, sums[1]) / static_cast<float>(p.width);
  const float scale = 1.0f / sqrtf(variance + p.eps);
  const float weight_offset = p.kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= p.width) continue;
    O* const out = static_cast<O*>(p.out) + row + element(item);
    float bias[kN] = {}, before[kN] = {}, y[kN];
    if (p.bias != nullptr) LoadFloats<kN>(p.bias + element(item), bias);
    if (p.add_to_out) LoadFloats<kN>(out, before);
#pragma unroll
    for (int e = 0; e < kN; ++e) {
      y[e] =
          before[e] + ((x[item][e] - mean) * scale * (weight[item][e] + weight_offset) + bias[e]);
    }
    StoreFloats<kN>(y, out);
  }
}

template <typename X, typename O, int kN, int kItems>
cudaError_t NormOf(const Stream& stream, const NormParams& params, int32_t n_rows) {
  const int64_t threads = CeilDiv(CeilDiv(params.width, kN * kItems), kWarpThreads) * kWarpThreads;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_rows)),
                          .block = dim3(static_cast<unsigned>(threads))};
  return Launch<&NormKernel<X, O, kN, kItems>>(stream, shape, params);
}

}  // namespace

cudaError_t Norm(const Stream& stream, const NormArgs& args) {
  SC_CHECK(args.width <= kMaxNormWidth);
  const NormParams params{.x = args.x.data,
                          .weight = args.weight,
                          .bias = args.bias,
                          .out = args.out.data,
                          .width = args.width,
                          .kind = args.kind,
                          .eps = args.eps,
                          .add_to_out = args.add_to_out};
  return WithTypes(args.x.dtype, args.out.dtype, [&](auto from, auto to) {
    using X = decltype(from);
    using O = decltype(to);
    if (args.width % kWide != 0) {
      SC_CHECK(args.width <= 8 * kMaxThreads);
      return NormOf<X, O, 1, 8>(stream, params, args.n_rows);
    }
    if (args.width <= kWide * kFewThreads) {
      return NormOf<X, O, kWide, 1>(stream, params, args.n_rows);
    }
    if (args.width <= 4 * kWide * kFewThreads) {
      return NormOf<X, O, kWide, 4>(stream, params, args.n_rows);
    }
    return NormOf<X, O, kWide, 8>(stream, params, args.n_rows);
  });
}

}  // namespace stagecoach::kernels::cuda
