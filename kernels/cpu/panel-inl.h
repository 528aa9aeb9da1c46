// The inner kernel of Gemm and Attention: float rows times panels (panel.h).
//
// c[row][output] is one chain of multiply-adds over k = 0, 1, 2...: the same bits for any rows and
// panels computed beside it. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_PANEL_INL_H_
#undef STAGECOACH_KERNELS_CPU_PANEL_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_PANEL_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "kernels/cpu/panel.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using PanelTag = hn::CappedTag<float, kPanelRows>;
using PanelVec = hn::Vec<PanelTag>;
inline constexpr size_t kPanelLanes = hn::MaxLanes(PanelTag());
inline constexpr size_t kPanelVecs = kPanelRows / kPanelLanes;

// Rows per register block. Together with the weight vectors they fill the registers.
inline constexpr size_t kBlockRows = kPanelLanes == 16 ? 12 : kPanelLanes == 8 ? 6 : 2;

// Panels per register block: enough independent chains to hide the multiply-add latency for few
// rows.
constexpr size_t PanelsAtOnce(size_t rows) {
  if (kPanelLanes == 16) return rows <= 4 ? 4 : 2;
  if (kPanelLanes == 8) return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  return 1;
}
inline constexpr size_t kMaxPanelsAtOnce = 4;

// Vector `v` of input k of a panel; kOdd states whether k is odd.
template <DType kType, bool kOdd>
HWY_INLINE PanelVec LoadWeights(const uint8_t* panel, size_t k, size_t v) {
  const PanelTag d;
  if constexpr (kType == DType::kBF16) {
    const hn::RebindToUnsigned<PanelTag> du;
    const auto words = hn::Load(
        du, reinterpret_cast<const uint32_t*>(panel) + k / 2 * kPanelRows + v * kPanelLanes);
    if constexpr (kOdd) return hn::BitCast(d, hn::And(words, hn::Set(du, 0xffff0000u)));
    return hn::BitCast(d, hn::ShiftLeft<16>(words));
  } else if constexpr (kType == DType::kF16) {
    const hn::Rebind<hwy::float16_t, PanelTag> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(panel) +
                                              k * kPanelRows + v * kPanelLanes));
  } else {
    return hn::Load(d, reinterpret_cast<const float*>(panel) + k * kPanelRows + v * kPanelLanes);
  }
}

// sum[r][v] += x[r][k] * w[v]
template <DType kType, size_t kRows, size_t kPanels, bool kOdd>
HWY_INLINE void MulInput(const float* HWY_RESTRICT x, size_t x_stride, const uint8_t* const* panels,
                         size_t k, PanelVec (&sum)[kRows][kPanels * kPanelVecs]) {
  const PanelTag d;
  PanelVec w[kPanels * kPanelVecs];
  for (size_t p = 0; p < kPanels; ++p) {
    for (size_t v = 0; v < kPanelVecs; ++v) {
      w[p * kPanelVecs + v] = LoadWeights<kType, kOdd>(panels[p], k, v);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    const PanelVec value = hn::Set(d, x[r * x_stride + k]);
    for (size_t v = 0; v < kPanels * kPanelVecs; ++v)
      sum[r][v] = hn::MulAdd(value, w[v], sum[r][v]);
  }
}

// x: kRows rows of k floats, x_stride apart. panels: kPanels of them. c: kRows rows of kPanels * 16
// floats, c_stride apart, overwritten or, with `accumulate`, added to.
template <DType kType, size_t kRows, size_t kPanels>
HWY_INLINE void MulBlock(const float* HWY_RESTRICT x, size_t x_stride, const uint8_t* const* panels,
                         size_t k, float* HWY_RESTRICT c, size_t c_stride, bool accumulate) {
  constexpr size_t kVecs = kPanels * kPanelVecs;
  constexpr size_t kPrefetchBytes = 1024;
  const PanelTag d;
  PanelVec sum[kRows][kVecs];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      sum[r][v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * kPanelLanes) : hn::Zero(d);
    }
  }
  size_t i = 0;
  for (; i + 2 <= k; i += 2) {
    // With a single row, panels are long streams (gemm.cpp), which the hardware prefetches better
    // on its own.
    if constexpr (kRows > 1 && kRows <= 4) {
      for (size_t p = 0; p < kPanels; ++p) {
        const uint8_t* const ahead =
            panels[p] + i * kPanelRows * DTypeBytes(kType) + kPrefetchBytes;
        hwy::Prefetch(ahead);
        if constexpr (kType == DType::kF32) hwy::Prefetch(ahead + 64);
      }
    }
    MulInput<kType, kRows, kPanels, false>(x, x_stride, panels, i, sum);
    MulInput<kType, kRows, kPanels, true>(x, x_stride, panels, i + 1, sum);
  }
  if (i < k) MulInput<kType, kRows, kPanels, false>(x, x_stride, panels, i, sum);
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      hn::StoreU(sum[r][v], d, c + r * c_stride + v * kPanelLanes);
    }
  }
}

template <DType kType, size_t kRows>
HWY_NOINLINE void MulRows(const float* x, size_t x_stride, const uint8_t* const* panels,
                          size_t n_panels, size_t k, float* c, size_t c_stride, bool accumulate) {
  constexpr size_t kAtOnce = PanelsAtOnce(kRows);
  size_t p = 0;
  for (; p + kAtOnce <= n_panels; p += kAtOnce) {
    MulBlock<kType, kRows, kAtOnce>(x, x_stride, panels + p, k, c + p * kPanelRows, c_stride,
                                    accumulate);
  }
  if constexpr (kAtOnce > 1) {
    for (; p < n_panels; ++p) {
      MulBlock<kType, kRows, 1>(x, x_stride, panels + p, k, c + p * kPanelRows, c_stride,
                                accumulate);
    }
  }
}

// c[n_rows, n_panels * 16] = x[n_rows, k] times the panels, for any number of rows.
template <DType kType, size_t kRows = kBlockRows>
HWY_INLINE void MulPanels(size_t n_rows, const float* x, size_t x_stride,
                          const uint8_t* const* panels, size_t n_panels, size_t k, float* c,
                          size_t c_stride, bool accumulate) {
  for (; n_rows >= kRows; n_rows -= kRows) {
    MulRows<kType, kRows>(x, x_stride, panels, n_panels, k, c, c_stride, accumulate);
    x += kRows * x_stride;
    c += kRows * c_stride;
  }
  if constexpr (kRows > 1) {
    if (n_rows > 0) {
      MulPanels<kType, kRows - 1>(n_rows, x, x_stride, panels, n_panels, k, c, c_stride,
                                  accumulate);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
