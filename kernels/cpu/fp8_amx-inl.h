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
#include <utility>

#include "kernels/cpu/bf16_amx-inl.h"
#include "kernels/cpu/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// Turns codes into bfloat16 numbers, byte by byte: subnormal floats, which shifted codes can be,
// take Intel's CPUs a hundred times as long to multiply as others. The vectors stay in registers
// from line to line.
class Fp8ToBf16 {
 public:
  HWY_INLINE Fp8ToBf16()
      : order_(Dup(kOrder)),
        high_(Dup(kHigh)),
        subnormal_high_(Dup(kSubnormalHigh)),
        subnormal_low_(Dup(kSubnormalLow)),
        nibble_(hn::Set(db_, uint8_t{0x0f})),
        exponent_(hn::Set(db_, uint8_t{0x78})),
        sign_(hn::Set(db_, uint8_t{0x80})),
        even_(hn::BitCast(db_, hn::Set(HalfTag(), uint16_t{0xff}))) {}

  // Four inputs of 16 outputs. to: two rows of pairs
  HWY_INLINE void Store(Fp8Words words, uint8_t* to) const {
    const HalfTag d;
    const Bytes codes = hn::TableLookupBytes(hn::BitCast(db_, words), order_);
    const Bytes low_bits = hn::And(codes, nibble_);
    const Bytes high_bits =
        hn::And(hn::BitCast(db_, hn::ShiftRight<4>(hn::BitCast(d, codes))), nibble_);
    const auto is_subnormal = hn::Eq(hn::And(codes, exponent_), hn::Zero(db_));
    const Bytes low = hn::IfThenElse(is_subnormal, hn::TableLookupBytes(subnormal_low_, low_bits),
                                     hn::BitCast(db_, hn::ShiftLeft<4>(hn::BitCast(d, low_bits))));
    const Bytes size = hn::IfThenElse(is_subnormal, hn::TableLookupBytes(subnormal_high_, low_bits),
                                      hn::TableLookupBytes(high_, high_bits));
    const Bytes high = hn::OrAnd(size, codes, sign_);
    const Bytes first =
        hn::IfVecThenElse(even_, low, hn::BitCast(db_, hn::ShiftLeft<8>(hn::BitCast(d, high))));
    const Bytes second =
        hn::IfVecThenElse(even_, hn::BitCast(db_, hn::ShiftRight<8>(hn::BitCast(d, low))), high);
    hn::StoreU(first, db_, to);
    hn::StoreU(second, db_, to + kAmxRowBytes);
  }

 private:
  using ByteTag = hn::Repartition<uint8_t, PanelTag>;
  using HalfTag = hn::Repartition<uint16_t, PanelTag>;
  using Bytes = hn::Vec<ByteTag>;

  static HWY_INLINE Bytes Dup(const uint8_t (&bytes)[16]) {
    return hn::LoadDup128(ByteTag(), bytes);
  }

  // One input of both pairs, then the other one.
  HWY_ALIGN static constexpr uint8_t kOrder[16] = {0, 2,  1, 3,  4,  6,  5,  7,
                                                   8, 10, 9, 11, 12, 14, 13, 15};
  // The first byte of a normal number, by the first half of its code.
  HWY_ALIGN static constexpr uint8_t kHigh[16] = {0x3c, 0x3d, 0x3e, 0x3f, 0x40, 0x41, 0x42, 0x43,
                                                  0xbc, 0xbd, 0xbe, 0xbf, 0xc0, 0xc1, 0xc2, 0xc3};
  // Both bytes of the multiples of 2^-9, which subnormal codes are.
  HWY_ALIGN static constexpr uint8_t kSubnormalHigh[16] = {0,    0x3b, 0x3b, 0x3b,
                                                           0x3c, 0x3c, 0x3c, 0x3c};
  HWY_ALIGN static constexpr uint8_t kSubnormalLow[16] = {0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60};

  ByteTag db_;
  Bytes order_, high_, subnormal_high_, subnormal_low_, nibble_, exponent_, sign_, even_;
};

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
      hn::StoreU(ScalesOf(panel, (first + i) / group), PanelTag(), to.scales[i / at_once]);
    }
    const Fp8ToBf16 convert;
    for (size_t i = 0; i < n; i += Steps::kStep) {
      CopyStep(convert, codes, first + i, std::min(Steps::kStep, n - i),
               to.steps[i / Steps::kStep]);
    }
  }

  // Those of panels contain the 2^120 that shifted codes lack.
  HWY_INLINE PanelVec ScalesOf(const uint8_t* panel, size_t group) const {
    return hn::Mul(weights.Scales(panel, group, 0), hn::Set(PanelTag(), 0x1p-120f));
  }

  // Inputs [first, first + n), n <= kStep, and zeros up to kStep.
  static HWY_INLINE void CopyStep(const Fp8ToBf16& convert, const uint8_t* codes, size_t first,
                                  size_t n, uint8_t* to) {
    if (n == Steps::kStep) {
#pragma GCC unroll 8
      for (size_t i = 0; i < Steps::kStep; i += kFp8Line) {
        const size_t line = first + i;
        hwy::Prefetch(codes + line / kFp8Line * kFp8LineBytes + kAhead);
        convert.Store(LoadFp8(codes, line, 0), to + i / 2 * kAmxRowBytes);
      }
      return;
    }
    std::fill_n(to, kAmxBytes, uint8_t{0});
    for (size_t i = 0; i < n; i += kFp8Line) {
      // What follows in the last line counts as zero.
      const size_t bits = 8 * std::min(kFp8Line, n - i);
      const int32_t mask = static_cast<int32_t>(~uint32_t{0} >> (32 - bits));
      const hn::RebindToSigned<PanelTag> di;
      convert.Store(hn::And(LoadFp8(codes, first + i, 0), hn::Set(di, mask)),
                    to + i / 2 * kAmxRowBytes);
    }
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

  // c[n_rows, n_panels * 16] = n_rows <= kRows rows (CopyX) times up to four panels. c has room
  // for n_rows rows of four panels.
  void MulFew(size_t n_rows, const uint8_t* steps, const uint8_t* const* panels, size_t n_panels,
              float* c, size_t c_stride) const {
    const uint8_t* all[kMaxPanelsAtOnce];
    for (size_t p = 0; p < kMaxPanelsAtOnce; ++p) all[p] = panels[p < n_panels ? p : 0];
    if (n_rows <= kAmxRows) return MulStreams<1, 4>(n_rows, steps, all, c, c_stride);
    for (size_t p = 0; p < n_panels; p += 2) {
      MulStreams<2, 2>(n_rows, steps, all + p, c + p * kPanelRows, c_stride);
    }
  }

  // Reads the panels side by side, so that tiles are multiplied while the next ones are made.
  template <size_t kXTiles, size_t kPanels>
  HWY_NOINLINE void MulStreams(size_t n_rows, const uint8_t* steps, const uint8_t* const* panels,
                               float* c, size_t c_stride) const {
    constexpr int kX = 4, kW = 6;  // the tiles of x; those of panels take turns
    static_assert(kXTiles * kPanels == kX && kXTiles <= 2);
    constexpr size_t kSums = kPanels * kPanelRows;
    const size_t k = weights.k, group = GroupOf(weights.encoding, k), at_once = sum_inputs();
    const size_t scale_bytes = Fp8ScaleBytes(k, weights.encoding);
    alignas(kAmxRowBytes) uint8_t copies[2][kPanels][kAmxBytes];
    HWY_ALIGN float sums[kXTiles * kAmxRows * kSums];
    const Fp8ToBf16 convert;
    const AmxTiles tiles(kAmxRowBytes, std::min(n_rows, kAmxRows));
    const auto for_each = [](const auto& f) {
      [&]<int... kI>(std::integer_sequence<int, kI...>) {
        (f(std::integral_constant<int, kI>()), ...);
      }(std::make_integer_sequence<int, kX>());
    };
    for (size_t first = 0; first < k; first += at_once) {
      const size_t end = std::min(first + at_once, k);
      for_each([](auto sum) { ZeroTile<sum.value>(); });
      for (size_t i = first; i < end; i += Steps::kStep) {
        auto& copy = copies[i / Steps::kStep % 2];
        for (size_t p = 0; p < kPanels; ++p) {
          CopyStep(convert, panels[p] + scale_bytes, i, std::min(Steps::kStep, end - i), copy[p]);
        }
        const uint8_t* const x = steps + i / Steps::kStep * Steps::kStepBytes;
        LoadRows<kX>(x, kAmxRowBytes);
        if constexpr (kXTiles == 2) LoadRows<kX + 1>(x + kAmxBytes, kAmxRowBytes);
        [&]<int... kP>(std::integer_sequence<int, kP...>) {
          (
              [&] {
                LoadRows<kW + kP % 2>(copy[kP], kAmxRowBytes);
                AddBf16Products<kP, kX, kW + kP % 2>();
                if constexpr (kXTiles == 2) AddBf16Products<kPanels + kP, kX + 1, kW + kP % 2>();
              }(),
              ...);
        }(std::make_integer_sequence<int, kPanels>());
      }
      for_each([&](auto sum) {
        constexpr size_t kRow = sum.value / kPanels * kAmxRows, kPanel = sum.value % kPanels;
        StoreRows<sum.value>(sums + kRow * kSums + kPanel * kPanelRows, kSums * sizeof(float));
      });
      for (size_t p = 0; p < kPanels; ++p) {
        AddScaled(n_rows, sums + p * kPanelRows, kSums, ScalesOf(panels[p], first / group),
                  first > 0, c + p * kPanelRows, c_stride);
      }
    }
  }

  // c[n_rows, 16] = or += sums * scales
  static HWY_INLINE void AddScaled(size_t n_rows, const float* sums, size_t stride, PanelVec scales,
                                   bool accumulate, float* c, size_t c_stride) {
    const PanelTag d;
    for (size_t r = 0; r < n_rows; ++r) {
      float* const to = c + r * c_stride;
      const PanelVec total = accumulate ? hn::LoadU(d, to) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(hn::Load(d, sums + r * stride), scales, total), d, to);
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
      for (size_t p = 0; p < kPanels; ++p) {
        AddScaled(n_rows, sums + p * kPanelRows, kSums, hn::LoadU(d, panels[p].scales[s]),
                  accumulate || i > 0, c + p * kPanelRows, c_stride);
      }
    }
  }
};

#endif  // HWY_AVX3

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
