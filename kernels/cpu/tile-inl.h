// Multiplication with many rows: a tile of rows times a group of panels, with the sums in
// registers. Both factors are packed in the order of use, and the copies stay in the caches.
// Source: packing as in K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008. Each c[row][output] is the same chain of multiply-adds as in panel-inl.h,
// so few rows and many rows give the same bits. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_TILE_INL_H_
#undef STAGECOACH_KERNELS_CPU_TILE_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_TILE_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// Tile for blocked multiplication with float weights. GemmBlocks (gemm_blocks-inl.h) documents the
// members.
template <DType kType>
struct FloatTile {
  static constexpr size_t kRows = kBlockRows;
  // A tile with one or two thirds of the rows takes one or two thirds of the time.
  static constexpr size_t kRowStep = kRows % 3 == 0 ? kRows / 3 : kRows;
  static constexpr size_t kGroup = PanelsAtOnce(kRows);
  // The group's copy takes 16 KiB (8 KiB with 4 lanes, 32 KiB with 16 lanes): half of L1.
  static constexpr size_t kInputs = 256;
  static constexpr size_t kWidth = kGroup * kPanelRows;
  static constexpr size_t kVecs = kGroup * kPanelVecs;
  static constexpr size_t kXBytes = kInputs * kRows * sizeof(float);
  static constexpr size_t kWBytes = kInputs * kWidth * sizeof(float);

  const float* x;  // [T, k]
  size_t k;

  // to: [n][kRows]: inputs [first, first + n) of rows [row, row + n_rows); further rows are zero.
  void CopyX(size_t row, size_t n_rows, size_t first, size_t n, uint8_t* to) const {
    float* const out = reinterpret_cast<float*>(to);
    for (size_t r = 0; r < kRows; ++r) {
      const float* const from = x + (row + r) * k + first;
      for (size_t i = 0; i < n; ++i) out[i * kRows + r] = r < n_rows ? from[i] : 0.0f;
    }
  }

  // to: [n][kWidth]: inputs [first, first + n) of the panels.
  static void CopyW(const uint8_t* const* panels, size_t n_panels, size_t first, size_t n,
                    uint8_t* to) {
    const PanelTag d;
    float* const out = reinterpret_cast<float*>(to);
    for (size_t p = 0; p < n_panels; ++p) {
      const uint8_t* const panel = panels[p];
      for (size_t v = 0; v < kPanelVecs; ++v) {
        float* const column = out + p * kPanelRows + v * kPanelLanes;
        size_t i = 0;
        for (; i + 2 <= n; i += 2) {
          hn::Store(LoadWeights<kType, false>(panel, first + i, v), d, column + i * kWidth);
          hn::Store(LoadWeights<kType, true>(panel, first + i + 1, v), d,
                    column + (i + 1) * kWidth);
        }
        if (i < n) {
          hn::Store(LoadWeights<kType, false>(panel, first + i, v), d, column + i * kWidth);
        }
      }
    }
  }

  // c: [kRows][kWidth]. At least n_rows rows are overwritten if first is 0, else accumulated.
  template <size_t kN = kRows>
  static void Mul(size_t n_rows, const uint8_t* x_copy, const uint8_t* w_copy, size_t first,
                  size_t n, float* c) {
    if constexpr (kN > kRowStep) {
      if (n_rows <= kN - kRowStep) return Mul<kN - kRowStep>(n_rows, x_copy, w_copy, first, n, c);
    }
    const PanelTag d;
    const float* HWY_RESTRICT xs = reinterpret_cast<const float*>(x_copy);
    const float* HWY_RESTRICT ws = reinterpret_cast<const float*>(w_copy);
    PanelVec sum[kN][kVecs];
    for (size_t r = 0; r < kN; ++r) {
      for (size_t v = 0; v < kVecs; ++v) {
        sum[r][v] = first > 0 ? hn::LoadU(d, c + r * kWidth + v * kPanelLanes) : hn::Zero(d);
      }
    }
    // Without unrolling, GCC copies and spills sums between iterations, which costs a third of the
    // speed.
#pragma GCC unroll 4
    for (size_t i = 0; i < n; ++i, xs += kRows, ws += kWidth) {
      PanelVec w[kVecs];
      for (size_t v = 0; v < kVecs; ++v) w[v] = hn::Load(d, ws + v * kPanelLanes);
      for (size_t r = 0; r < kN; ++r) {
        const PanelVec value = hn::Set(d, xs[r]);
        for (size_t v = 0; v < kVecs; ++v) sum[r][v] = hn::MulAdd(value, w[v], sum[r][v]);
      }
    }
    for (size_t r = 0; r < kN; ++r) {
      for (size_t v = 0; v < kVecs; ++v) {
        hn::StoreU(sum[r][v], d, c + r * kWidth + v * kPanelLanes);
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
