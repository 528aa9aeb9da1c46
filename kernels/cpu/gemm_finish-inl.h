// The last stage of a GEMM: stores panel sums to y, with bias and the previous y. Included once per
// instruction set.
#if defined(STAGECOACH_KERNELS_CPU_GEMM_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_GEMM_FINISH_INL_H_
#undef STAGECOACH_KERNELS_CPU_GEMM_FINISH_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_GEMM_FINISH_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/gemm_span.h"
#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// Stores rows [first_row, first_row + n_rows) of y, in the columns of `panel`. c: n_rows rows of 16
// sums, c_stride apart.
HWY_INLINE void FinishPanel(const GemmSpan& span, size_t panel, size_t first_row, size_t n_rows,
                            const float* c, size_t c_stride) {
  const PanelTag d;
  const GemmArgs& args = *span.args;
  const size_t n = static_cast<size_t>(args.w->rows);
  const size_t first = span.first_output + panel * kPanelRows;
  const size_t width = std::min(kPanelRows, span.n_outputs - panel * kPanelRows);
  HWY_ALIGN float bias[kPanelRows] = {};
  if (args.bias != nullptr) std::copy_n(args.bias + first, width, bias);
  for (size_t r = 0; r < n_rows; ++r) {
    const float* const from = c + r * c_stride;
    float* const y = args.y.f32() + (first_row + r) * n + first;
    if (width == kPanelRows) {
      for (size_t v = 0; v < kPanelRows; v += kPanelLanes) {
        PanelVec sum = hn::Add(hn::LoadU(d, from + v), hn::Load(d, bias + v));
        if (args.add_to_y) sum = hn::Add(hn::LoadU(d, y + v), sum);
        hn::StoreU(sum, d, y + v);
      }
    } else {
      for (size_t i = 0; i < width; ++i) {
        const float sum = from[i] + bias[i];
        y[i] = args.add_to_y ? y[i] + sum : sum;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
