#include "kernels/cuda/gemm/skinny_gemm.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/gemm/skinny_kernel.h"

namespace stagecoach::kernels::cuda {
namespace {

// One warp per group and output.
template <typename T, typename O>
__global__ void __launch_bounds__(kWarps* kWarpThreads) PlainGroupedKernel(const SkinnyParams p) {
  LetNextStart();
  WaitForPrevious();
  const GroupedGemmArgs& a = p.grouped;
  if (GroupOfBlock() >= *a.n_groups) return;
  const RowGroup group = a.groups[GroupOfBlock()];
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int output = static_cast<int>(blockIdx.y) * kWarps + warp;
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
  return x == w && x != DType::kF32 && cols % Pieces<BF16>::kChunk == 0;
}

bool SuitsSkinnyGated(const GemmArgs& gemm, const ActivationArgs& activation) {
  return activation.gated && activation.clamped.limit == 0 && gemm.bias == nullptr &&
         gemm.n_rows <= kMaxGatedRows && activation.width % 8 == 0 &&
         gemm.w->rows == 2 * activation.width && activation.out.dtype == gemm.x.dtype &&
         gemm.y.dtype == gemm.x.dtype && gemm.x.dtype != DType::kF32;
}

bool HasSkinnyGatedGemm(const GemmArgs& gemm, const ActivationArgs& activation) {
  return SuitsSkinnyGated(gemm, activation) && gemm.w->parts.empty() &&
         HasSkinnyGemm(gemm.x.dtype, gemm.w->dtype, gemm.w->cols);
}

bool SuitsNormedSkinny(const NormArgs& norm, const GemmArgs& gemm) {
  return HasRowNorm(norm, gemm) && gemm.bias == nullptr && !gemm.add_to_y &&
         gemm.y.dtype == gemm.x.dtype && gemm.x.dtype != DType::kF32;
}

bool HasNormedSkinnyGemm(const NormArgs& norm, const GemmArgs& gemm) {
  return SuitsNormedSkinny(norm, gemm) && gemm.w->parts.empty() &&
         HasSkinnyGemm(gemm.x.dtype, gemm.w->dtype, gemm.w->cols);
}

namespace {

SkinnyParams ToParams(const GemmArgs& args) {
  return {.x = args.x.data,
          .w = args.w->buffer.data.get(),
          .bias = args.bias,
          .y = args.y.data,
          .n_rows = args.n_rows,
          .rows = args.w->rows,
          .cols = args.w->cols,
          .y_stride = args.w->rows,
          .add_to_y = args.add_to_y};
}

SkinnyParams ToParams(const NormArgs& norm, const GemmArgs& gemm) {
  SkinnyParams params = ToParams(gemm);
  params.norm = RowNormOf(norm);
  return params;
}

template <Kind kKind, bool kNormed>
cudaError_t LaunchFewRows(const Stream& stream, const SkinnyParams& params, DType dtype) {
  return dtype == DType::kBF16 ? LaunchSkinny<BF16, BF16, BF16, 1, kKind, kNormed>(stream, params)
                               : LaunchSkinny<F16, F16, F16, 1, kKind, kNormed>(stream, params);
}

}  // namespace

cudaError_t NormedSkinnyGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm) {
  return LaunchFewRows<Kind::kPlain, true>(stream, ToParams(norm, gemm), gemm.x.dtype);
}

cudaError_t SkinnyGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation) {
  SkinnyParams params = ToParams(gemm);
  params.y = activation.out.data;
  params.y_stride = activation.width;
  params.activation = activation.kind;
  return LaunchFewRows<Kind::kGated, false>(stream, params, gemm.x.dtype);
}

cudaError_t NormedSkinnyGatedGemm(const Stream& stream, const NormArgs& norm, const GemmArgs& gemm,
                                  const ActivationArgs& activation) {
  SkinnyParams params = ToParams(norm, gemm);
  params.y = activation.out.data;
  params.y_stride = activation.width;
  params.activation = activation.kind;
  return LaunchFewRows<Kind::kGated, true>(stream, params, gemm.x.dtype);
}

cudaError_t SkinnyGemm(const Stream& stream, const GemmArgs& args) {
  SC_CHECK(args.n_rows <= kMaxSkinnyRows);
  const SkinnyParams params = ToParams(args);
  const auto launch = [&]<typename T, typename O>() {
    return args.n_rows <= 8 ? LaunchSkinny<T, T, O, 1, Kind::kPlain>(stream, params)
                            : LaunchSkinny<T, T, O, 2, Kind::kPlain>(stream, params);
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
  const SkinnyParams params{.x = args.x,
                            .y = args.y.data,
                            .rows = args.rows,
                            .cols = args.cols,
                            .y_stride = args.rows,
                            .grouped = args};
  const auto launch = [&]<typename T, typename O>() {
    if constexpr (!std::is_same_v<T, float>) {
      if (HasSkinnyGemm(args.dtype, args.dtype, args.cols)) {
        return LaunchSkinny<T, T, O, 2, Kind::kGrouped>(stream, params);
      }
    }
    const LaunchShape shape{.grid = GroupedGrid(args.max_groups, CeilDiv(args.rows, kWarps)),
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
