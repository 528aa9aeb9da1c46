// Multiplication by FP8 weights (fp8_panel.h). A weight becomes scale * code in float32, rounded
// once; from there on it is multiplied as a float32 weight (panel-inl.h, tile-inl.h). Included once
// per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_FP8_INL_H_
#undef STAGECOACH_KERNELS_CPU_FP8_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_FP8_INL_H_
#endif

#include <algorithm>

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

// The code of input kByte of each word, times 2^-120: its bits in the places of a float's sign,
// exponent and first bits of the mantissa. This also holds for subnormal codes.
template <int kByte>
HWY_INLINE PanelVec DecodeFp8(Fp8Words words) {
  const hn::RebindToSigned<PanelTag> di;
  if constexpr (kByte < 3) words = hn::ShiftLeft<8 * (3 - kByte)>(words);
  const auto mask = hn::Set(di, static_cast<int32_t>(0x87f00000u));
  return hn::BitCast(PanelTag(), hn::And(hn::ShiftRight<4>(words), mask));
}

// Tile for blocked multiplication with FP8 weights; see gemm_blocks-inl.h.
struct Fp8Tile : FloatTile<DType::kF32> {
  Encoding encoding;

  // Scales of the group that has input `at`.
  HWY_INLINE PanelVec Scales(const uint8_t* panel, size_t group, size_t v) const {
    const PanelTag d;
    const float* const scales = reinterpret_cast<const float*>(panel);
    if (encoding.rows_share_scales) return hn::Set(d, scales[group]);
    return hn::LoadU(d, scales + group * kPanelRows + v * kPanelLanes);
  }

  // Calls use(input, weights) for inputs [first, end) of vector v in order. All are of one group,
  // and `first` is a multiple of kFp8Line.
  template <typename F>
  static HWY_INLINE void ForEachInput(const uint8_t* codes, size_t first, size_t end, size_t v,
                                      PanelVec scale, const F& use) {
    size_t i = first;
    for (; i + kFp8Line <= end; i += kFp8Line) {
      const Fp8Words words = LoadFp8(codes, i, v);
      use(i, hn::Mul(DecodeFp8<0>(words), scale));
      use(i + 1, hn::Mul(DecodeFp8<1>(words), scale));
      use(i + 2, hn::Mul(DecodeFp8<2>(words), scale));
      use(i + 3, hn::Mul(DecodeFp8<3>(words), scale));
    }
    if (i == end) return;
    const Fp8Words words = LoadFp8(codes, i, v);
    use(i, hn::Mul(DecodeFp8<0>(words), scale));
    if (i + 1 < end) use(i + 1, hn::Mul(DecodeFp8<1>(words), scale));
    if (i + 2 < end) use(i + 2, hn::Mul(DecodeFp8<2>(words), scale));
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
          ForEachInput(codes, i, end, v, Scales(panels[p], i / group, v),
                       [&](size_t input, PanelVec weights)
                           HWY_ATTR { hn::Store(weights, d, column + (input - first) * kWidth); });
          i = end;
        }
      }
    }
  }

  // One row, x: floats [n_inputs], times complete panels. c: [kPanels, 16]
  template <size_t kPanels>
  HWY_NOINLINE void MulOne(const uint8_t* x_bytes, const uint8_t* const* panels, size_t n_inputs,
                           float* c) const {
    const PanelTag d;
    const float* const x_row = reinterpret_cast<const float*>(x_bytes);
    const size_t group = GroupOf(encoding, n_inputs), codes = Fp8ScaleBytes(n_inputs, encoding);
    PanelVec sum[kPanels][kPanelVecs];
    for (size_t p = 0; p < kPanels; ++p) {
      for (size_t v = 0; v < kPanelVecs; ++v) sum[p][v] = hn::Zero(d);
    }
    for (size_t first = 0, g = 0; first < n_inputs; first += group, ++g) {
      const size_t end = std::min(first + group, n_inputs);
      PanelVec scale[kPanels][kPanelVecs];
      for (size_t p = 0; p < kPanels; ++p) {
        for (size_t v = 0; v < kPanelVecs; ++v) scale[p][v] = Scales(panels[p], g, v);
      }
      for (size_t i = first; i < end; i += kFp8Line) {
        const size_t line_end = std::min(i + kFp8Line, end);
        for (size_t p = 0; p < kPanels; ++p) {
          for (size_t v = 0; v < kPanelVecs; ++v) {
            ForEachInput(panels[p] + codes, i, line_end, v, scale[p][v],
                         [&](size_t input, PanelVec weights) HWY_ATTR {
                           sum[p][v] = hn::MulAdd(hn::Set(d, x_row[input]), weights, sum[p][v]);
                         });
          }
        }
      }
    }
    for (size_t p = 0; p < kPanels; ++p) {
      for (size_t v = 0; v < kPanelVecs; ++v) {
        hn::StoreU(sum[p][v], d, c + p * kPanelRows + v * kPanelLanes);
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
