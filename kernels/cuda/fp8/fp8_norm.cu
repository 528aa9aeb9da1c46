#include "kernels/cuda/fp8/fp8_norm.h"

#include "common/check.h"
#include "kernels/cuda/elementwise/norm_row.h"
#include "kernels/cuda/fp8/fp8_quantize.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWide = 4;  // elements of a load
constexpr int kMostNormThreads = 1024;

struct NormedFp8Params {
  NormParams norm;
  Fp8Inputs out;
};

template <typename T, int kItems>
__global__ void __launch_bounds__(kMostNormThreads) NormedFp8Kernel(const NormedFp8Params p) {
  __shared__ float shared[3][kWarpThreads];
  LetNextStart();
  NormedRow<float, kWide, kItems> row;
  row.Load(p.norm, shared);
  float largest = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (row.Element(item) >= p.norm.width) continue;
#pragma unroll
    for (int e = 0; e < kWide; ++e) {
      row.at[item][e] = ToFloat(FromFloat<T>(row.at[item][e]));
      largest = fmaxf(largest, fabsf(row.at[item][e]));
    }
  }
  largest = BlockMax(largest, shared[2]);
  const float factor = Fp8Factor(largest);
  unsigned char* const codes = p.out.codes + int64_t{blockIdx.x} * p.norm.width;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (row.Element(item) >= p.norm.width) continue;
#pragma unroll
    for (int e = 0; e < kWide; ++e) row.at[item][e] *= factor;
    *reinterpret_cast<uint32_t*>(codes + row.Element(item)) = Fp8InputWord(row.at[item]);
  }
  if (threadIdx.x == 0) p.out.scales[blockIdx.x] = Fp8Scale(largest);
}

template <typename T>
cudaError_t Quantize(const Stream& stream, int32_t n_rows, const NormedFp8Params& params) {
  const int64_t n_pieces = params.norm.width / kWide;
  const auto launch = [&]<int kItems>() {
    const auto threads = CeilDiv(CeilDiv(n_pieces, kItems), kWarpThreads) * kWarpThreads;
    return Launch<&NormedFp8Kernel<T, kItems>>(
        stream,
        {.grid = dim3(static_cast<unsigned>(n_rows)), .block = static_cast<unsigned>(threads)},
        params);
  };
  if (n_pieces <= kMostNormThreads) return launch.template operator()<1>();
  return launch.template operator()<4>();
}

}  // namespace

bool HasNormedFp8Rows(const NormArgs& norm) {
  return norm.x.dtype == DType::kF32 && norm.out.dtype != DType::kF32 && !norm.add_to_out &&
         norm.width % kFp8Cols == 0 && norm.width <= kMostNormedFp8Cols;
}

cudaError_t QuantizeNormedFp8Rows(const Stream& stream, const NormArgs& norm,
                                  const Fp8Inputs& out) {
  SC_CHECK(HasNormedFp8Rows(norm));
  const NormedFp8Params params{.norm = {.x = norm.x.data,
                                        .weight = norm.weight,
                                        .bias = norm.bias,
                                        .out = nullptr,
                                        .width = norm.width,
                                        .kind = norm.kind,
                                        .eps = norm.eps,
                                        .add_to_out = false},
                               .out = out};
  return norm.out.dtype == DType::kBF16 ? Quantize<BF16>(stream, norm.n_rows, params)
                                        : Quantize<F16>(stream, norm.n_rows, params);
}

}  // namespace stagecoach::kernels::cuda
