#include "kernels/cuda/fp8/fp8_activate.h"

#include "common/check.h"
#include "kernels/cuda/elementwise/activated.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWide = 8;  // columns of a thread
constexpr unsigned kThreads = 256;
constexpr int64_t kMostGridY = 65535;

struct Fp8ActivateParams {
  const BF16* x;
  BF16* out;
  const float *x_scales, *w_scales;
  int32_t n_rows, width;
  Activation kind;
};

// Grid: x covers the columns, y the rows.
__global__ void __launch_bounds__(kThreads) Fp8ActivateKernel(const Fp8ActivateParams p) {
  LetNextStart();
  WaitForPrevious();
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x) * kWide;
  if (i >= p.width) return;
  float gate_scale[kWide], up_scale[kWide];
  LoadFloats<kWide>(p.w_scales + i, gate_scale);
  LoadFloats<kWide>(p.w_scales + p.width + i, up_scale);
  for (int64_t row = blockIdx.y; row < p.n_rows; row += gridDim.y) {
    const BF16* const x = p.x + row * 2 * p.width + i;
    const float scale = p.x_scales[row];
    float gate[kWide], up[kWide];
    LoadFloats<kWide>(x, gate);
    LoadFloats<kWide>(x + p.width, up);
#pragma unroll
    for (int e = 0; e < kWide; ++e) {
      gate[e] = ActivatedBy</*kExact=*/false>(p.kind, gate[e] * (scale * gate_scale[e])) *
                (up[e] * (scale * up_scale[e]));
    }
    StoreFloats<kWide>(gate, p.out + row * p.width + i);
  }
}

}  // namespace

bool HasFp8Activate(const ActivationArgs& args) {
  return args.gated && args.clamped.limit == 0 && args.x.dtype == DType::kBF16 &&
         args.out.dtype == DType::kBF16 && args.width % kWide == 0;
}

cudaError_t Fp8Activate(const Stream& stream, const ActivationArgs& args, const float* x_scales,
                        const float* w_scales) {
  SC_CHECK(HasFp8Activate(args));
  const LaunchShape shape{
      .grid =
          dim3(static_cast<unsigned>(CeilDiv(args.width, kWide * static_cast<int64_t>(kThreads))),
               static_cast<unsigned>(args.n_rows < kMostGridY ? args.n_rows : kMostGridY)),
      .block = kThreads};
  return Launch<&Fp8ActivateKernel>(stream, shape,
                                    Fp8ActivateParams{.x = static_cast<const BF16*>(args.x.data),
                                                      .out = static_cast<BF16*>(args.out.data),
                                                      .x_scales = x_scales,
                                                      .w_scales = w_scales,
                                                      .n_rows = args.n_rows,
                                                      .width = args.width,
                                                      .kind = args.kind});
}

}  // namespace stagecoach::kernels::cuda
