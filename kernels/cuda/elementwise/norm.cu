#include "kernels/cuda/elementwise/norm.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/elementwise/norm_row.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWide = 4;  // elements per load and thread, if the width allows it
constexpr int kMaxThreads = 1024;
// Threads per CTA for rows that are not very wide. Then several CTAs share an SM and overlap their
// loads.
constexpr int kFewThreads = 256;

// A row's elements stay in registers between the passes.
template <typename X, typename O, int kN, int kItems>
__global__ void __launch_bounds__(kMaxThreads) NormKernel(const NormParams p) {
  __shared__ float sums[2][kWarpThreads];
  LetNextStart();
  NormedRow<X, kN, kItems> row;
  row.Load(p, sums);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (row.Element(item) >= p.width) continue;
    O* const out = static_cast<O*>(p.out) + int64_t{blockIdx.x} * p.width + row.Element(item);
    float before[kN] = {}, y[kN];
    if (p.add_to_out) LoadFloats<kN>(out, before);
#pragma unroll
    for (int e = 0; e < kN; ++e) y[e] = before[e] + row.at[item][e];
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
