#include "kernels/cuda/elementwise/biased_activation.h"

#include <type_traits>

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/elementwise/gated.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements per thread, if the width allows it

struct BiasedParams {
  const void* x;
  void* out;
  int32_t n_rows, width;
  Activation kind;
  ClampedGlu clamped;
  ExpertBias bias;
};

// Grid: x covers the columns, y the rows.
template <typename T, int kN>
__global__ void BiasedActivateKernel(const BiasedParams p) {
  constexpr bool kExact = std::is_same_v<T, float>;
  LetNextStart();
  WaitForPrevious();
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x) * kN;
  if (i >= p.width) return;
  for (int64_t row = blockIdx.y; row < p.n_rows; row += gridDim.y) {
    const T* const x = static_cast<const T*>(p.x) + row * p.width * 2 + i;
    float gate[kN], up[kN];
    LoadFloats<kN>(x, gate);
    LoadFloats<kN>(x + p.width, up);
    if (p.bias.bias != nullptr) {
      const float* const bias =
          p.bias.bias + int64_t{p.bias.experts[p.bias.order[row]]} * p.width * 2 + i;
#pragma unroll
      for (int e = 0; e < kN; ++e) {
        gate[e] += bias[e];
        up[e] += bias[p.width + e];
      }
    }
#pragma unroll
    for (int e = 0; e < kN; ++e) {
      gate[e] = GatedBy<kExact>(p.kind, p.clamped, gate[e], up[e]);
    }
    StoreFloats<kN>(gate, static_cast<T*>(p.out) + row * p.width + i);
  }
}

}  // namespace

cudaError_t ActivateBiased(const Stream& stream, const ActivationArgs& args,
                           const ExpertBias& bias) {
  SC_CHECK(args.gated && args.x.dtype == args.out.dtype);
  constexpr int64_t kMaxGridY = 65535;
  const BiasedParams params{.x = args.x.data,
                            .out = args.out.data,
                            .n_rows = args.n_rows,
                            .width = args.width,
                            .kind = args.kind,
                            .clamped = args.clamped,
                            .bias = bias};
  const auto shape = [&](int n) {
    return LaunchShape{
        .grid = dim3(static_cast<unsigned>(CeilDiv(CeilDiv(args.width, n), kThreads)),
                     static_cast<unsigned>(args.n_rows < kMaxGridY ? args.n_rows : kMaxGridY)),
        .block = kThreads};
  };
  return WithType(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    return args.width % kWide == 0
               ? Launch<&BiasedActivateKernel<T, kWide>>(stream, shape(kWide), params)
               : Launch<&BiasedActivateKernel<T, 1>>(stream, shape(1), params);
  });
}

}  // namespace stagecoach::kernels::cuda
