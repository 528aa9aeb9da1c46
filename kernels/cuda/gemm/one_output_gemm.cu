#include "kernels/cuda/gemm/one_output_gemm.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 4;  // per CTA, one row each
constexpr int kWide = 8;   // elements per load, if the width allows it

struct Params {
  const void *x, *w;
  const float* bias;
  void* y;
  int32_t n_rows, cols;
  bool add_to_y;
};

template <typename T, typename Y, int kN>
__global__ void __launch_bounds__(kWarps* kWarpThreads) OneOutputKernel(const Params p) {
  LetNextStart();
  WaitForPrevious();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  if (row >= p.n_rows) return;
  const T* const x = static_cast<const T*>(p.x) + row * p.cols;
  float sum = 0;
  for (int32_t i = lane * kN; i < p.cols; i += kWarpThreads * kN) {
    float a[kN], b[kN];
    LoadFloats<kN>(x + i, a);
    LoadFloats<kN>(static_cast<const T*>(p.w) + i, b);
#pragma unroll
    for (int e = 0; e < kN; ++e) sum = fmaf(a[e], b[e], sum);
  }
  sum = WarpSum(sum);
  if (lane != 0) return;
  if (p.bias != nullptr) sum += *p.bias;
  Y& y = static_cast<Y*>(p.y)[row];
  y = FromFloat<Y>(p.add_to_y ? ToFloat(y) + sum : sum);
}

}  // namespace

cudaError_t OneOutputGemm(const Stream& stream, const GemmArgs& args) {
  SC_CHECK(args.w->rows == 1 && args.x.dtype == args.w->dtype);
  SC_CHECK(args.y.dtype == DType::kF32 || args.y.dtype == args.x.dtype);
  const Params params{.x = args.x.data,
                      .w = args.w->buffer.data.get(),
                      .bias = args.bias,
                      .y = args.y.data,
                      .n_rows = args.n_rows,
                      .cols = args.w->cols,
                      .add_to_y = args.add_to_y};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(args.n_rows, kWarps))),
                          .block = kWarps * kWarpThreads};
  const auto launch = [&]<typename T, typename Y>() {
    return args.w->cols % kWide == 0 ? Launch<&OneOutputKernel<T, Y, kWide>>(stream, shape, params)
                                     : Launch<&OneOutputKernel<T, Y, 1>>(stream, shape, params);
  };
  return WithType(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    return args.y.dtype == DType::kF32 ? launch.template operator()<T, float>()
                                       : launch.template operator()<T, T>();
  });
}

}  // namespace stagecoach::kernels::cuda
