// Multiplication by bfloat16 weights with AMX, which multiplies 16 rows by 16 outputs and 32 inputs
// in one instruction: about sixteen times as fast as float32. The inputs are rounded to bfloat16,
// as for bf16_dot-inl.h. A panel's pairs of inputs are the rows of a tile.
//
// c[row][output] is one chain of sums over 32 inputs (AddBf16Products): the same bits for any rows
// and panels computed beside it. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_BF16_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_BF16_AMX_INL_H_
#undef STAGECOACH_KERNELS_CPU_BF16_AMX_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_BF16_AMX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/amx-inl.h"
#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// Tile for blocked multiplication; see gemm_blocks-inl.h.
struct Bf16AmxTile {
  static constexpr size_t kRows = 2 * kAmxRows;
  static constexpr size_t kRowStep = kAmxRows;
  static constexpr size_t kGroup = 2;
  static constexpr size_t kInputs = 256;
  static constexpr size_t kWidth = kGroup * kPanelRows;
  static constexpr size_t kStep = 32;                  // inputs of a tile
  static constexpr size_t kStepBytes = 2 * kAmxBytes;  // of the inputs of 32 rows
  static constexpr size_t kXBytes = kInputs / kStep * kStepBytes;

  // What follows the last whole step of a panel may not belong to it, so it is copied.
  struct WCopy {
    const uint8_t* at[kGroup];
    alignas(kAmxRowBytes) uint8_t rest[kGroup][kAmxBytes];
  };
  static constexpr size_t kWBytes = sizeof(WCopy);

  const float* x;  // [T, k]
  size_t k;

  static constexpr size_t StepCount(size_t n_inputs) { return (n_inputs + kStep - 1) / kStep; }

  // Inputs [first, first + n) of up to 32 rows. to: [steps][32 rows][32 inputs], so many bfloat16.
  // Rows that do not exist keep what is there: it changes nothing but their own results.
  void CopyX(size_t row, size_t n_rows, size_t first, size_t n, uint8_t* to) const {
    const PanelTag d;
    for (size_t r = 0; r < n_rows; ++r) {
      const float* const from = x + (row + r) * k + first;
      uint8_t* const column = to + r * kAmxRowBytes;
      for (size_t i = 0; i < n; i += kStep) {
        const float* at = from + i;
        HWY_ALIGN float rest[kStep];
        if (i + kStep > n) {
          std::fill(std::copy_n(at, n - i, rest), rest + kStep, 0.0f);
          at = rest;
        }
        hn::Store(RoundToPairs(hn::LoadU(d, at), hn::LoadU(d, at + kPanelLanes)), d,
                  reinterpret_cast<float*>(column + i / kStep * kStepBytes));
      }
    }
  }

  // The last inputs of a panel, fewer than a step: `n` from the panel's address on.
  static void CopyRest(const uint8_t* panel, size_t n, uint8_t* to) {
    const size_t whole = n / kStep * kAmxBytes;
    const size_t bytes = (n + 1) / 2 * kPanelRows * sizeof(uint32_t) - whole;
    std::fill(std::copy_n(panel + whole, bytes, to), to + kAmxBytes, uint8_t{0});
  }

  static void CopyW(const uint8_t* const* panels, size_t n_panels, size_t first, size_t n,
                    uint8_t* to) {
    WCopy& copy = *reinterpret_cast<WCopy*>(to);
    for (size_t p = 0; p < kGroup; ++p) {
      copy.at[p] = panels[std::min(p, n_panels - 1)] + first * kPanelRows * sizeof(uint16_t);
      if (n % kStep != 0) CopyRest(copy.at[p], n, copy.rest[p]);
    }
  }

  static void Mul(size_t n_rows, const uint8_t* x_copy, const uint8_t* w_copy, size_t first,
                  size_t n, float* c) {
    const WCopy& w = *reinterpret_cast<const WCopy*>(w_copy);
    const bool accumulate = first > 0;
    if (n_rows > kAmxRows) {
      MulTiles<2, kGroup>(x_copy, w.at, w.rest, n, c, kWidth, accumulate);
    } else {
      MulTiles<1, kGroup>(x_copy, w.at, w.rest, n, c, kWidth, accumulate);
    }
  }

  // c[n_rows, n_panels * 16] = n_rows <= kRows rows (CopyX) times up to four panels. c has room
  // for 16 or 32 rows of four panels.
  static void MulFew(size_t n_rows, const uint8_t* steps, const uint8_t* const* panels,
                     size_t n_panels, size_t n, float* c, size_t c_stride) {
    const uint8_t* at[kMaxPanelsAtOnce];
    alignas(kAmxRowBytes) uint8_t rest[kMaxPanelsAtOnce][kAmxBytes];
    for (size_t p = 0; p < kMaxPanelsAtOnce; ++p) {
      at[p] = panels[p < n_panels ? p : 0];
      if (n % kStep != 0) CopyRest(at[p], n, rest[p]);
    }
    if (n_rows <= kAmxRows && n_panels == 4) {
      return MulTiles<1, 4>(steps, at, rest, n, c, c_stride, false);
    }
    for (size_t p = 0; p < n_panels; p += 2) {
      if (n_rows > kAmxRows) {
        MulTiles<2, 2>(steps, at + p, rest + p, n, c + p * kPanelRows, c_stride, false);
      } else {
        MulTiles<1, 2>(steps, at + p, rest + p, n, c + p * kPanelRows, c_stride, false);
      }
    }
  }

  // kXTiles * 16 rows (CopyX) times kPanels panels. rest: the panels' inputs after the last
  // whole step. c: overwritten or, with `accumulate`, added to.
  template <size_t kXTiles, size_t kPanels>
  static HWY_NOINLINE void MulTiles(const uint8_t* x, const uint8_t* const* panels,
                                    const uint8_t (*rest)[kAmxBytes], size_t n, float* c,
                                    size_t c_stride, bool accumulate) {
    constexpr int kX = 4, kW = 6;  // the tiles of x; those of panels take turns
    static_assert(kXTiles * kPanels <= kX && kXTiles <= 2);
    const size_t n_whole = n / kStep;
    const auto for_sums = [&](const auto& f) {
      [&]<int... kI>(std::integer_sequence<int, kI...>) {
        (f(std::integral_constant<int, kI>(),
           c + kI / kPanels * kAmxRows * c_stride + kI % kPanels * kPanelRows),
         ...);
      }(std::make_integer_sequence<int, kXTiles * kPanels>());
    };
    const auto step = [&](size_t i, const auto& panel) {
      LoadRows<kX>(x + i * kStepBytes, kAmxRowBytes);
      if constexpr (kXTiles == 2) LoadRows<kX + 1>(x + i * kStepBytes + kAmxBytes, kAmxRowBytes);
      [&]<int... kP>(std::integer_sequence<int, kP...>) {
        (
            [&] {
              LoadRows<kW + kP % 2>(panel(kP), kAmxRowBytes);
              AddBf16Products<kP, kX, kW + kP % 2>();
              if constexpr (kXTiles == 2) AddBf16Products<kPanels + kP, kX + 1, kW + kP % 2>();
            }(),
            ...);
      }(std::make_integer_sequence<int, kPanels>());
    };
    const AmxTiles tiles(kAmxRowBytes);
    if (accumulate) {
      for_sums([&](auto tile, float* at) { LoadRows<tile.value>(at, c_stride * sizeof(float)); });
    } else {
      for_sums([&](auto tile, float*) { ZeroTile<tile.value>(); });
    }
    for (size_t i = 0; i < n_whole; ++i) {
      step(i, [&](int p) { return panels[p] + i * kAmxBytes; });
    }
    if (n % kStep != 0) step(n_whole, [&](int p) { return rest[p]; });
    for_sums([&](auto tile, float* at) { StoreRows<tile.value>(at, c_stride * sizeof(float)); });
  }
};

#endif  // HWY_AVX3

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
