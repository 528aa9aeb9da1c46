#include "kernels/cuda/fp8/fp8_skinny.h"

#include "common/check.h"
#include "kernels/cuda/fp8/fp8_one_row_kernel.h"
#include "kernels/cuda/gemm/skinny_kernel.h"

namespace stagecoach::kernels::cuda {
namespace {

static_assert(kFp8Cols % Pieces<Fp8Code>::kChunk == 0);

template <typename T, typename O>
cudaError_t Multiply(const Stream& stream, const SkinnyParams& params, bool batch_invariant) {
  if (params.n_rows == 1 && !batch_invariant) {
    return LaunchFp8OneRow<T, O, Kind::kPlain>(stream, params);
  }
  return params.n_rows <= 8 ? LaunchSkinny<Fp8Code, T, O, 1, Kind::kPlain>(stream, params)
                            : LaunchSkinny<Fp8Code, T, O, 2, Kind::kPlain>(stream, params);
}

template <typename T>
cudaError_t Multiply(const Stream& stream, const SkinnyParams& params, bool to_float,
                     bool batch_invariant) {
  return to_float ? Multiply<T, float>(stream, params, batch_invariant)
                  : Multiply<T, T>(stream, params, batch_invariant);
}

// A norm comes with one row only.
template <typename T>
cudaError_t MultiplyFused(const Stream& stream, const SkinnyParams& params, const Fp8Fused& fused) {
  if (fused.activation == nullptr) {
    return LaunchFp8OneRow<T, T, Kind::kPlain, /*kNormed=*/true>(stream, params);
  }
  if (fused.norm != nullptr) {
    return LaunchFp8OneRow<T, T, Kind::kGated, /*kNormed=*/true>(stream, params);
  }
  return params.n_rows == 1 ? LaunchFp8OneRow<T, T, Kind::kGated>(stream, params)
                            : LaunchSkinny<Fp8Code, T, T, 1, Kind::kGated>(stream, params);
}

}  // namespace

cudaError_t Fp8Skinny(const Stream& stream, const Fp8Product& product, bool batch_invariant) {
  SC_CHECK(product.x.dtype != DType::kF32);
  const SkinnyParams params{.x = product.x.data,
                            .w = product.w.codes,
                            .scales = product.w.scales,
                            .bias = product.bias,
                            .y = product.y.data,
                            .n_rows = product.n_rows,
                            .rows = product.w.rows,
                            .cols = product.w.cols,
                            .y_stride = product.y_stride,
                            .add_to_y = product.add_to_y};
  const bool to_float = product.y.dtype == DType::kF32;
  return product.x.dtype == DType::kBF16 ? Multiply<BF16>(stream, params, to_float, batch_invariant)
                                         : Multiply<F16>(stream, params, to_float, batch_invariant);
}

bool HasFp8Fused(const Fp8Fused& fused) {
  return (fused.norm == nullptr || SuitsNormedSkinny(*fused.norm, *fused.gemm)) &&
         (fused.activation == nullptr || SuitsSkinnyGated(*fused.gemm, *fused.activation));
}

cudaError_t RunFp8Fused(const Stream& stream, const Fp8Fused& fused) {
  SkinnyParams params{.x = fused.gemm->x.data,
                      .w = fused.w.codes,
                      .scales = fused.w.scales,
                      .y = fused.gemm->y.data,
                      .n_rows = fused.gemm->n_rows,
                      .rows = fused.w.rows,
                      .cols = fused.w.cols,
                      .y_stride = fused.w.rows};
  if (fused.norm != nullptr) params.norm = RowNormOf(*fused.norm);
  if (fused.activation != nullptr) {
    params.y = fused.activation->out.data;
    params.y_stride = fused.activation->width;
    params.activation = fused.activation->kind;
  }
  return fused.gemm->x.dtype == DType::kBF16 ? MultiplyFused<BF16>(stream, params, fused)
                                             : MultiplyFused<F16>(stream, params, fused);
}

}  // namespace stagecoach::kernels::cuda
