// Multiplication by FP8 weights with AMX. Every e4m3 code is a bfloat16, so weights become tiles of
// bf16_amx-inl.h without their scales, and inputs are rounded to bfloat16. The sums of the inputs
// that share a scale, 256 at most, are scaled in float32.
//
// c[row][output] is one chain of such sums, for any rows and panels computed beside it. Included
// once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_FP8_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_FP8_AMX_INL_H_
#undef STAGECOACH_KERNELS_CPU_FP8_AMX_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_FP8_AMX_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/bf16_amx-inl.h"
#include "kernels/cpu/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// Tile for blocked multiplication (gemm_blocks-inl.h), and for 32 rows at most.
struct Fp8AmxTile {
  using Steps = Bf16AmxTile;
  static constexpr size_t kRows = Steps::kRows;
  static constexpr size_t kRowStep = Steps::kRowStep;
  static constexpr size_t kGroup = Steps::kGroup;
  static constexpr size_t kInputs = Steps::kInputs;
  static constexpr size_t kWidth = Steps::kWidth;
  static constexpr size_t kXBytes = Steps::kXBytes;
  static constexpr size_t kMostSums = kInputs / Steps::kStep;  // per kInputs

  static constexpr size_t kAhead = 4096;  // bytes of codes to prefetch: those of kInputs

  // kInputs of a panel.
  struct Panel {
    alignas(kAmxRowBytes) uint8_t steps[kInputs / Steps::kStep][kAmxBytes];
    float scales[kMostSums][kPanelRows];
  };
  static constexpr size_t kWBytes = kGroup * sizeof(Panel);

  Fp8Tile weights;

  Steps rows() const { return {weights.x, weights.k}; }
  size_t sum_inputs() const { return SumInputs(weights.encoding, weights.k); }

  // How many inputs are summed before they are scaled. 0: such weights are not for this tile.
  static constexpr size_t SumInputs(const Encoding& encoding, size_t k) {
    if (GroupCount(encoding, k) == 1) return kInputs;
    const size_t group = GroupOf(encoding, k);
    if (group % kInputs == 0) return kInputs;
    return group % Steps::kStep == 0 && kInputs % group == 0 ? group : 0;
  }

  void CopyX(size_t row, size_t n_rows, size_t first, size_t n, uint8_t* to) const {
    rows().CopyX(row, n_rows, first, n, to);
  }

  void CopyW(const uint8_t* const* panels, size_t n_panels, size_t first, size_t n,
             uint8_t* to) const {
    Panel* const copies = reinterpret_cast<Panel*>(to);
    for (size_t p = 0; p < n_panels; ++p) CopyPanel(panels[p], first, n, copies[p]);
  }

  // Inputs [first, first + n), n <= kInputs.
  void CopyPanel(const uint8_t* panel, size_t first, size_t n, Panel& to) const {
    const size_t k = weights.k, group = GroupOf(weights.encoding, k);
    const uint8_t* const codes = panel + Fp8ScaleBytes(k, weights.encoding);
    const size_t at_once = sum_inputs();
    for (size_t i = 0; i < n; i += at_once) {
      const PanelVec scale = weights.Scales(panel, (first + i) / group, 0);
      // Those of panels contain the 2^120 that codes lack; here the codes get it.
      hn::StoreU(hn::Mul(scale, hn::Set(PanelTag(), 0x1p-120f)), PanelTag(),
                 to.scales[i / at_once]);
    }
    uint8_t* at = to.steps[0];
    size_t i = 0;
    for (; i + kFp8Line <= n; i += kFp8Line, at += 2 * kAmxRowBytes) {
      hwy::Prefetch(codes + (first + i) / kFp8Line * kAmxRowBytes + kAhead);
      CopyLine(LoadFp8(codes, first + i, 0), at);
    }
    uint8_t* const end = to.steps[Steps::StepCount(n) - 1] + kAmxBytes;
    if (i < n) {  // what follows in the line counts as zero
      const int32_t mask = static_cast<int32_t>((uint32_t{1} << 8 * (n - i)) - 1);
      const hn::RebindToSigned<PanelTag> di;
      CopyLine(hn::And(LoadFp8(codes, first + i, 0), hn::Set(di, mask)), at);
      at += 2 * kAmxRowBytes;
    }
    std::fill(at, end, uint8_t{0});
  }

  // Four inputs: two rows of pairs.
  static HWY_INLINE void CopyLine(Fp8Words words, uint8_t* to) {
    // The codes of a pair, each in both bytes of a half.
    HWY_ALIGN static constexpr uint8_t kFirst[16] = {0, 0, 1, 1, 4,  4,  5,  5,
                                                     8, 8, 9, 9, 12, 12, 13, 13};
    HWY_ALIGN static constexpr uint8_t kSecond[16] = {2,  2,  3,  3,  6,  6,  7,  7,
                                                      10, 10, 11, 11, 14, 14, 15, 15};
    const hn::Repartition<uint8_t, PanelTag> db;
    const auto bytes = hn::BitCast(db, words);
    StoreBf16(hn::TableLookupBytes(bytes, hn::LoadDup128(db, kFirst)), to);
    StoreBf16(hn::TableLookupBytes(bytes, hn::LoadDup128(db, kSecond)), to + kAmxRowBytes);
  }

  // codes: each in both bytes of a half. Without float arithmetic: subnormal numbers, which shifted
  // codes can be, take Intel's CPUs a hundred times as long.
  template <typename Bytes>
  static HWY_INLINE void StoreBf16(Bytes codes, uint8_t* to) {
    // The low bytes, then the high bytes of m * 2^-9, which the subnormal codes are.
    HWY_ALIGN static constexpr uint8_t kSubnormal[16] = {
        0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60, 0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c};
    const hn::Repartition<uint16_t, PanelTag> d;
    const hn::Repartition<uint8_t, PanelTag> db;
    const auto halves = hn::BitCast(d, codes);
    const auto size = hn::And(hn::ShiftRight<4>(halves), hn::Set(d, uint16_t{0x7f0}));
    const auto normal = hn::Add(size, hn::Set(d, uint16_t{(127 - 7) << 7}));
    const auto places =
        hn::Or(hn::And(halves, hn::Set(d, uint16_t{0x707})), hn::Set(d, uint16_t{0x800}));
    const auto subnormal = hn::BitCast(
        d, hn::TableLookupBytes(hn::LoadDup128(db, kSubnormal), hn::BitCast(db, places)));
    const auto number = hn::IfThenElse(hn::Lt(size, hn::Set(d, uint16_t{0x80})), subnormal, normal);
    const auto sign = hn::And(halves, hn::Set(d, uint16_t{0x8000}));
    hn::StoreU(hn::Or(number, sign), d, reinterpret_cast<uint16_t*>(to));
  }

  // c: [kRows][kWidth], overwritten if first is 0, else accumulated.
  void Mul(size_t n_rows, const uint8_t* x_copy, const uint8_t* w_copy, size_t first, size_t n,
           float* c) const {
    const Panel* const panels = reinterpret_cast<const Panel*>(w_copy);
    if (n_rows > kAmxRows) {
      MulPanels<2, kGroup>(n_rows, x_copy, panels, n, first > 0, c, kWidth);
    } else {
      MulPanels<1, kGroup>(n_rows, x_copy, panels, n, first > 0, c, kWidth);
    }
  }

  // c[n_rows, n_panels * 16] = n_rows <= kRows rows (CopyX) times the panels.
  void MulFew(size_t n_rows, const uint8_t* steps, const uint8_t* const* panels, size_t n_panels,
              float* c, size_t c_stride) const {
    const size_t k = weights.k;
    Panel copy;
    for (size_t p = 0; p < n_panels; ++p) {
      for (size_t first = 0; first < k; first += kInputs) {
        const size_t n = std::min(kInputs, k - first);
        CopyPanel(panels[p], first, n, copy);
        const uint8_t* const x = steps + first / kInputs * kXBytes;
        if (n_rows > kAmxRows) {
          MulPanels<2, 1>(n_rows, x, &copy, n, first > 0, c + p * kPanelRows, c_stride);
        } else {
          MulPanels<1, 1>(n_rows, x, &copy, n, first > 0, c + p * kPanelRows, c_stride);
        }
      }
    }
  }

  template <size_t kXTiles, size_t kPanels>
  void MulPanels(size_t n_rows, const uint8_t* x, const Panel* panels, size_t n, bool accumulate,
                 float* c, size_t c_stride) const {
    constexpr size_t kSums = kPanels * kPanelRows;
    const PanelTag d;
    HWY_ALIGN float sums[kXTiles * kAmxRows * kSums];
    const size_t at_once = sum_inputs();
    for (size_t i = 0, s = 0; i < n; i += at_once, ++s) {
      const uint8_t* at[kPanels];
      for (size_t p = 0; p < kPanels; ++p) at[p] = panels[p].steps[i / Steps::kStep];
      // Whole steps: they end with zeros.
      const size_t n_inputs = Steps::StepCount(std::min(at_once, n - i)) * Steps::kStep;
      Steps::MulTiles<kXTiles, kPanels>(x + i / Steps::kStep * Steps::kStepBytes, at, nullptr,
                                        n_inputs, sums, kSums, false);
      for (size_t r = 0; r < n_rows; ++r) {
        for (size_t p = 0; p < kPanels; ++p) {
          float* const to = c + r * c_stride + p * kPanelRows;
          const PanelVec total = accumulate || i > 0 ? hn::LoadU(d, to) : hn::Zero(d);
          const PanelVec sum = hn::Load(d, sums + r * kSums + p * kPanelRows);
          hn::StoreU(hn::MulAdd(sum, hn::LoadU(d, panels[p].scales[s]), total), d, to);
        }
      }
    }
  }
};

#endif  // HWY_AVX3

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
