// Multiplication by bfloat16 weights with AVX-512's BF16 extension, which multiplies a pair of
// inputs at once: twice as fast as float32. The inputs are rounded to bfloat16.
//
// c[row][output] is one chain of steps over pairs of inputs, each of which adds the products of an
// odd input and then of the even one before it: the same bits for any rows and panels computed
// beside it. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_BF16_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_BF16_DOT_INL_H_
#undef STAGECOACH_KERNELS_CPU_BF16_DOT_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_BF16_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// The functions for pairs exist if the instruction set can have the extension. Their instructions
// are written out because Highway has no target with the extension.
#if HWY_TARGET == HWY_AVX3

// Rounds 32 floats.
HWY_INLINE PanelVec RoundToPairs(PanelVec low, PanelVec high) {
  PanelVec pairs;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(pairs.raw) : "v"(high.raw), "v"(low.raw));
  return pairs;
}

// sum += the products of each pair.
HWY_INLINE void AddPair(PanelVec x, PanelVec w, PanelVec& sum) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
}

// Tile for blocked multiplication (gemm_blocks-inl.h), which needs no copies of panels.
struct Bf16DotTile {
  static constexpr size_t kRows = 14;  // with two panels, 31 registers
  static constexpr size_t kRowStep = 1;
  static constexpr size_t kGroup = 2;
  static constexpr size_t kInputs = 256;
  static constexpr size_t kWidth = kGroup * kPanelRows;
  static constexpr size_t kXBytes = kInputs * kRows * sizeof(uint16_t);
  static constexpr size_t kWBytes = 64;  // addresses of the panels

  // Rows of which one row of pairs is multiplied by kMaxPanelsAtOnce panels at once.
  static constexpr size_t kFewRows = 6;

  const float* x;  // [T, k]
  size_t k;

  static constexpr size_t PairCount(size_t n_inputs) { return (n_inputs + 1) / 2; }

  // Pairs of inputs [first, first + n) of `n_rows` rows. to: [pairs][stride]
  void CopyPairs(size_t row, size_t n_rows, size_t first, size_t n, size_t stride,
                 uint32_t* to) const {
    const PanelTag d;
    constexpr size_t kAtOnce = 2 * kPanelLanes;
    HWY_ALIGN float rest[kAtOnce];
    HWY_ALIGN uint32_t pairs[kPanelLanes];
    for (size_t r = 0; r < n_rows; ++r) {
      const float* const from = x + (row + r) * k + first;
      for (size_t i = 0; i < n; i += kAtOnce) {
        const float* at = from + i;
        if (i + kAtOnce > n) {
          std::fill_n(std::copy_n(at, n - i, rest), kAtOnce - (n - i), 0.0f);
          at = rest;
        }
        hn::Store(RoundToPairs(hn::LoadU(d, at), hn::LoadU(d, at + kPanelLanes)), d,
                  reinterpret_cast<float*>(pairs));
        const size_t n_pairs = std::min(kPanelLanes, PairCount(n - i));
        uint32_t* const column = to + i / 2 * stride + r;
        for (size_t p = 0; p < n_pairs; ++p) column[p * stride] = pairs[p];
      }
    }
  }

  void CopyX(size_t row, size_t n_rows, size_t first, size_t n, uint8_t* to) const {
    CopyPairs(row, n_rows, first, n, kRows, reinterpret_cast<uint32_t*>(to));
  }

  static void CopyW(const uint8_t* const* panels, size_t n_panels, size_t first, size_t /*n*/,
                    uint8_t* to) {
    const uint8_t* at[kGroup];
    for (size_t p = 0; p < kGroup; ++p) {
      at[p] = panels[std::min(p, n_panels - 1)] + first * kPanelRows * sizeof(uint16_t);
    }
    std::memcpy(to, at, sizeof(at));
  }

  static void Mul(size_t n_rows, const uint8_t* x_copy, const uint8_t* w_copy, size_t first,
                  size_t n, float* c) {
    const uint8_t* panels[kGroup];
    std::memcpy(panels, w_copy, sizeof(panels));
    MulRows<kRows, kGroup>(n_rows, reinterpret_cast<const uint32_t*>(x_copy), kRows, panels,
                           PairCount(n), c, kWidth, first > 0);
  }

  // c[n_rows, n_panels * 16] = n_rows <= kRows rows of pairs [n_pairs][n_rows] times the panels.
  static void MulFew(size_t n_rows, const uint32_t* pairs, const uint8_t* const* panels,
                     size_t n_panels, size_t n_pairs, float* c, size_t c_stride) {
    size_t p = 0;
    if (n_rows <= kFewRows) {
      for (; p + 4 <= n_panels; p += 4) {
        MulRows<kFewRows, 4>(n_rows, pairs, n_rows, panels + p, n_pairs, c + p * kPanelRows,
                             c_stride, false);
      }
    }
    for (; p + 2 <= n_panels; p += 2) {
      MulRows<kRows, 2>(n_rows, pairs, n_rows, panels + p, n_pairs, c + p * kPanelRows, c_stride,
                        false);
    }
    if (p < n_panels) {
      MulRows<kRows, 1>(n_rows, pairs, n_rows, panels + p, n_pairs, c + p * kPanelRows, c_stride,
                        false);
    }
  }

  // Calls MulBlock for n_rows <= kN.
  template <size_t kN, size_t kPanels>
  static HWY_INLINE void MulRows(size_t n_rows, const uint32_t* x, size_t x_stride,
                                 const uint8_t* const* panels, size_t n_pairs, float* c,
                                 size_t c_stride, bool accumulate) {
    if (n_rows == kN) {
      MulBlock<kN, kPanels>(x, x_stride, panels, n_pairs, c, c_stride, accumulate);
    } else if constexpr (kN > 1) {
      MulRows<kN - 1, kPanels>(n_rows, x, x_stride, panels, n_pairs, c, c_stride, accumulate);
    }
  }

  // x: [n_pairs][x_stride], of which kN columns count. c: kN rows of kPanels * 16 floats,
  // overwritten or, with `accumulate`, added to.
  template <size_t kN, size_t kPanels>
  static HWY_NOINLINE void MulBlock(const uint32_t* HWY_RESTRICT x, size_t x_stride,
                                    const uint8_t* const* panels, size_t n_pairs,
                                    float* HWY_RESTRICT c, size_t c_stride, bool accumulate) {
    const PanelTag d;
    const hn::RebindToUnsigned<PanelTag> du;
    const float* w_at[kPanels];
    for (size_t p = 0; p < kPanels; ++p) w_at[p] = reinterpret_cast<const float*>(panels[p]);
    PanelVec sum[kN][kPanels];
    // Without these pragmas, GCC keeps the sums in memory.
#pragma GCC unroll 14
    for (size_t r = 0; r < kN; ++r) {
      for (size_t p = 0; p < kPanels; ++p) {
        sum[r][p] = accumulate ? hn::LoadU(d, c + r * c_stride + p * kPanelRows) : hn::Zero(d);
      }
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < n_pairs; ++i, x += x_stride) {
      PanelVec w[kPanels];
      for (size_t p = 0; p < kPanels; ++p) w[p] = hn::Load(d, w_at[p] + i * kPanelRows);
#pragma GCC unroll 14
      for (size_t r = 0; r < kN; ++r) {
        const PanelVec pair = hn::BitCast(d, hn::Set(du, x[r]));
        for (size_t p = 0; p < kPanels; ++p) AddPair(pair, w[p], sum[r][p]);
      }
    }
#pragma GCC unroll 14
    for (size_t r = 0; r < kN; ++r) {
      for (size_t p = 0; p < kPanels; ++p) {
        hn::StoreU(sum[r][p], d, c + r * c_stride + p * kPanelRows);
      }
    }
  }
};

#endif  // HWY_AVX3

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
