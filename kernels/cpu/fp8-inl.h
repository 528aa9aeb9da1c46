// Multiplication by FP8 weights (fp8_panel.h). A weight becomes scale * code in float32, rounded
// once; from there on it is multiplied as a float32 weight (panel-inl.h, tile-inl.h). Included once
// per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_FP8_INL_H_
#undef STAGECOACH_KERNELS_CPU_FP8_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_FP8_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/fp8_panel.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

using Fp8Words = hn::Vec<hn::RebindToSigned<PanelTag>>;

HWY_INLINE Fp8Words LoadFp8(const uint8_t* codes, size_t input, size_t v) {
  return hn::LoadU(
      hn::RebindToSigned<PanelTag>(),
      reinterpret_cast<const int32_t*>(codes) + input / kFp8Line * kPanelRows + v * kPanelLanes);
}

// A shifted code is a float 2^-120 times as large as the code, and a subnormal one if the code is.
// Intel's CPUs multiply subnormal floats a hundred times slower than others, but add them as fast.
// So codes become 2^-106 + 2^-120 * code, which is exact.
inline constexpr float kFp8Base = 0x1p-106f;

// Four inputs of kPanelLanes outputs.
struct Fp8Codes {
  PanelVec based[kFp8Line];

  // The bits of each code go to the places of a float's sign, exponent and first bits of the
  // mantissa. The arithmetic shift copies the sign.
  explicit HWY_INLINE Fp8Codes(Fp8Words words) {
#if HWY_TARGET == HWY_SCALAR  // it has no vectors of two elements
    based[0] = Based(hn::ShiftRight<4>(hn::ShiftLeft<24>(words)));
    based[1] = Based(hn::ShiftRight<4>(hn::ShiftLeft<16>(words)));
    based[2] = Based(hn::ShiftRight<4>(hn::ShiftLeft<8>(words)));
    based[3] = Based(hn::ShiftRight<4>(words));
#else
    // Shuffles in place of some shifts: CPUs with AVX2 run shifts where they run float arithmetic.
    HWY_ALIGN static constexpr uint8_t kEven[16] = {0, 0, 2,  2,  4,  4,  6,  6,
                                                    8, 8, 10, 10, 12, 12, 14, 14};
    HWY_ALIGN static constexpr uint8_t kLow[16] = {0, 1, 0, 1, 4,  5,  4,  5,
                                                   8, 9, 8, 9, 12, 13, 12, 13};
    const hn::RebindToSigned<PanelTag> di;
    const hn::Repartition<int16_t, PanelTag> dh;
    const hn::Repartition<uint8_t, PanelTag> db;
    const auto shuffled = [&](auto from, const uint8_t* order) HWY_ATTR {
      return hn::TableLookupBytes(hn::BitCast(db, from), hn::LoadDup128(db, order));
    };
    const auto even = hn::ShiftRight<4>(hn::BitCast(dh, shuffled(words, kEven)));
    const auto odd = hn::ShiftRight<4>(hn::BitCast(dh, words));
    based[0] = Based(hn::BitCast(di, shuffled(even, kLow)));
    based[1] = Based(hn::BitCast(di, shuffled(odd, kLow)));
    based[2] = Based(hn::BitCast(di, even));
    based[3] = Based(hn::BitCast(di, odd));
#endif
  }

  static HWY_INLINE PanelVec Based(Fp8Words words) {
    const PanelTag d;
    const auto mask = hn::Set(hn::RebindToSigned<PanelTag>(), static_cast<int32_t>(0x87f00000u));
    return hn::Add(hn::BitCast(d, hn::And(words, mask)), hn::Set(d, kFp8Base));
  }
};

// Scales of kPanelLanes outputs for a group of inputs.
struct Fp8Factors {
#if HWY_NATIVE_FMA
  PanelVec scale, minus_base;

  // scale: as it is in panels
  static HWY_INLINE Fp8Factors Of(PanelVec scale) {
    return {scale, hn::Mul(scale, hn::Set(PanelTag(), -kFp8Base))};
  }
  // The weights of codes, from Fp8Codes.
  HWY_INLINE PanelVec WeightsOf(PanelVec based) const {
    return hn::MulAdd(based, scale, minus_base);
  }
#else
  PanelVec scale;

  static HWY_INLINE Fp8Factors Of(PanelVec scale) {
    return {hn::Mul(scale, hn::Set(PanelTag(), 0x1p-120f))};
  }
  HWY_INLINE PanelVec WeightsOf(PanelVec based) const {
    const PanelTag d;
    const hn::RebindToSigned<PanelTag> di;
    const auto large = hn::Add(hn::BitCast(di, based), hn::Set(di, 120 << 23));  // times 2^120
    return hn::Mul(hn::Sub(hn::BitCast(d, large), hn::Set(d, kFp8Base * 0x1p120f)), scale);
  }
#endif
};

// Tile for blocked multiplication with FP8 weights; see gemm_blocks-inl.h.
struct Fp8Tile : FloatTile<DType::kF32> {
  Encoding encoding;

  // Up to so many rows, each panel is read directly from memory.
  static constexpr size_t kFewRows = kPanelLanes == 16 ? 6 : kPanelLanes == 8 ? 3 : 1;
  static constexpr size_t kAhead = 1024;  // bytes of codes to prefetch

  HWY_INLINE PanelVec Scales(const uint8_t* panel, size_t group, size_t v) const {
    const PanelTag d;
    const float* const scales = reinterpret_cast<const float*>(panel);
    if (encoding.rows_share_scales) return hn::Set(d, scales[group]);
    return hn::LoadU(d, scales + group * kPanelRows + v * kPanelLanes);
  }

  void CopyW(const uint8_t* const* panels, size_t n_panels, size_t first, size_t n,
             uint8_t* to) const {
    const PanelTag d;
    float* const out = reinterpret_cast<float*>(to);
    const size_t group = GroupOf(encoding, k);
    for (size_t p = 0; p < n_panels; ++p) {
      const uint8_t* const codes = panels[p] + Fp8ScaleBytes(k, encoding);
      for (size_t v = 0; v < kPanelVecs; ++v) {
        float* const column = out + p * kPanelRows + v * kPanelLanes;
        for (size_t i = first; i < first + n;) {
          const size_t end = std::min(first + n, (i / group + 1) * group);
          const Fp8Factors scales = Fp8Factors::Of(Scales(panels[p], i / group, v));
          const auto copy = [&](auto n_codes) HWY_ATTR {
            const Fp8Codes line(LoadFp8(codes, i, v));
            for (size_t j = 0; j < n_codes; ++j) {
              hn::Store(scales.WeightsOf(line.based[j]), d, column + (i - first + j) * kWidth);
            }
          };
          for (; i + kFp8Line <= end; i += kFp8Line) copy(WholeLine());
          if (i < end) copy(end - i);
          i = end;
        }
      }
    }
  }

  // c[n_rows, n_panels * 16] = the first n_rows <= kFewRows rows of x times the panels.
  template <size_t kRows = kFewRows>
  HWY_INLINE void MulFew(size_t n_rows, const uint8_t* const* panels, size_t n_panels, float* c,
                         size_t c_stride) const {
    if constexpr (kRows > 1) {
      if (n_rows < kRows) return MulFew<kRows - 1>(n_rows, panels, n_panels, c, c_stride);
    }
    constexpr size_t kAtOnce = PanelsAtOnce(kRows);
    size_t p = 0;
    for (; p + kAtOnce <= n_panels; p += kAtOnce) {
      MulRows<kRows, kAtOnce>(panels + p, c + p * kPanelRows, c_stride);
    }
    for (; p < n_panels; ++p) MulRows<kRows, 1>(panels + p, c + p * kPanelRows, c_stride);
  }

  template <size_t kRows, size_t kPanels>
  HWY_NOINLINE void MulRows(const uint8_t* const* panels, float* HWY_RESTRICT c,
                            size_t c_stride) const {
    const PanelTag d;
    const size_t group = GroupOf(encoding, k), scale_bytes = Fp8ScaleBytes(k, encoding);
    PanelVec sum[kRows][kPanels][kPanelVecs];
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t p = 0; p < kPanels; ++p) {
        for (size_t v = 0; v < kPanelVecs; ++v) sum[r][p][v] = hn::Zero(d);
      }
    }
    for (size_t i = 0, g = 0; i < k; ++g) {
      Fp8Factors scales[kPanels][kPanelVecs];
      for (size_t p = 0; p < kPanels; ++p) {
        for (size_t v = 0; v < kPanelVecs; ++v) {
          scales[p][v] = Fp8Factors::Of(Scales(panels[p], g, v));
        }
      }
      const auto add = [&](auto n_codes) HWY_ATTR {
// Else GCC keeps the sums in memory.
#pragma GCC unroll 4
        for (size_t p = 0; p < kPanels; ++p) {
          const uint8_t* const codes = panels[p] + scale_bytes;
          hwy::Prefetch(codes + i / kFp8Line * kFp8LineBytes + kAhead);
#pragma GCC unroll 4
          for (size_t v = 0; v < kPanelVecs; ++v) {
            const Fp8Codes line(LoadFp8(codes, i, v));
            for (size_t j = 0; j < n_codes; ++j) {
              const PanelVec weights = scales[p][v].WeightsOf(line.based[j]);
#pragma GCC unroll 6
              for (size_t r = 0; r < kRows; ++r) {
                sum[r][p][v] = hn::MulAdd(hn::Set(d, x[r * k + i + j]), weights, sum[r][p][v]);
              }
            }
          }
        }
      };
      const size_t end = std::min(i + group, k);
      for (; i + kFp8Line <= end; i += kFp8Line) add(WholeLine());
      if (i < end) add(end - i);
      i = end;
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t p = 0; p < kPanels; ++p) {
        for (size_t v = 0; v < kPanelVecs; ++v) {
          hn::StoreU(sum[r][p][v], d, c + r * c_stride + p * kPanelRows + v * kPanelLanes);
        }
      }
    }
  }

  using WholeLine = std::integral_constant<size_t, kFp8Line>;
};

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
