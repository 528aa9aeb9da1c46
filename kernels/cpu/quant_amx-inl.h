// Many rows times quantized weights with AMX, which multiplies 8-bit integers. A 16-bit input is
// 256 times its high byte, which is signed, plus its low byte: two products. So the sums of 32
// inputs are as exact as those of quant-inl.h, and what follows has the same order and bits.
// Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_QUANT_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_QUANT_AMX_INL_H_
#undef STAGECOACH_KERNELS_CPU_QUANT_AMX_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_QUANT_AMX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "kernels/cpu/amx-inl.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// Tile for blocked multiplication (gemm_blocks-inl.h), and for 16 rows at most.
template <Code kType>
struct QuantAmxTile : QuantTile<kType, true> {
  using Few = QuantTile<kType, true>;
  using Scales = BlockScales<kType>;
  using Few::kForm;

  static constexpr size_t kRows = kAmxRows;
  static constexpr size_t kRowStep = 4;
  static constexpr size_t kGroup = 2;  // panels
  static constexpr size_t kWidth = kGroup * kPanelRows;
  static constexpr size_t kBlocks = 16;
  static constexpr size_t kInputs = kBlocks * kQuantBlock;
  static constexpr size_t kScales = Scales::kGroups;  // per 32 inputs
  static constexpr size_t kAtOnce = kQuantBlock / kScales;
  // The difference of a code and its zero is an 8-bit integer, unless both are 8-bit integers.
  static constexpr bool kZerosApart = kType == Code::kInt8;

  using Codes = int8_t[kAtOnce * kPanelRows];  // of inputs with the same scale

  // Four inputs lie in the order 0, 2, 1, 3, as in panels with 8-bit codes.
  struct XCopy {
    int8_t high[kBlocks][kScales][kRows][kAtOnce];
    uint8_t low[kBlocks][kScales][kRows][kAtOnce];
    float scales[kBlocks][kRows];
    float sums[kBlocks][kRows];            // scale * sum of 32 integers
    int32_t minus_totals[kBlocks][kRows];  // of 32 integers
  };
  struct WCopy {
    alignas(kAmxRowBytes) Codes codes[kBlocks][kGroup][kScales];
    float scales[kBlocks][kScales][kWidth];
    float minus_minima[kForm.has_minima ? kBlocks : 1][kWidth];
    int32_t zeros[kZerosApart ? kBlocks : 1][kWidth];
  };
  static constexpr size_t kXBytes = (sizeof(XCopy) + 63) / 64 * 64;
  static constexpr size_t kWBytes = (sizeof(WCopy) + 63) / 64 * 64;

  // Rows that do not exist keep what is there: it changes nothing but their own results.
  void CopyX(size_t row, size_t n_rows, size_t first, size_t n, uint8_t* to) const {
    XCopy& copy = *reinterpret_cast<XCopy*>(to);
    float gathered[kQuantBlock];
    for (size_t r = 0; r < n_rows; ++r) {
      for (size_t b = 0; b < n / kQuantBlock; ++b) {
        const QuantizedInputs inputs(this->Inputs(row + r, first + b * kQuantBlock, gathered));
        for (size_t g = 0; g < kScales; ++g) {
          StoreBytes(inputs.codes + g * kAtOnce, copy.high[b][g][r], copy.low[b][g][r]);
        }
        copy.scales[b][r] = inputs.scale;
        copy.sums[b][r] = inputs.ScaledSum();
        copy.minus_totals[b][r] = -(inputs.sums[0] + inputs.sums[1]);
      }
    }
  }

  static void StoreBytes(const int16_t* codes, int8_t* high, uint8_t* low) {
    const hn::CappedTag<int16_t, kAtOnce> d;
    const hn::Rebind<int8_t, decltype(d)> d_high;
    const hn::Rebind<uint8_t, decltype(d)> d_low;
    const hn::Repartition<uint8_t, decltype(d)> db;
    HWY_ALIGN static constexpr uint8_t kOrder[16] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                     8, 9, 12, 13, 10, 11, 14, 15};
    const auto ordered = hn::BitCast(
        d, hn::TableLookupBytes(hn::BitCast(db, hn::LoadU(d, codes)), hn::LoadDup128(db, kOrder)));
    hn::StoreU(hn::DemoteTo(d_high, hn::ShiftRight<8>(ordered)), d_high, high);
    hn::StoreU(hn::DemoteTo(d_low, hn::And(ordered, hn::Set(d, int16_t{0xff}))), d_low, low);
  }

  void CopyW(const uint8_t* const* panels, size_t n_panels, size_t first, size_t n,
             uint8_t* to) const {
    WCopy& copy = *reinterpret_cast<WCopy*>(to);
    for (size_t p = 0; p < n_panels; ++p) {
      BlockWalk walk(this->layout(), first / kQuantBlock);
      for (size_t b = 0; b < n / kQuantBlock; ++b, walk.Next(this->layout())) {
        const auto scales = Scales::Of(this->encoding, panels[p], walk, 0);
        const uint8_t* const block = panels[p] + walk.block;
        if constexpr (kForm.bits == 8) {
          std::memcpy(copy.codes[b][p], block, sizeof(copy.codes[b][p]));
        } else {
          CopyCodes(block, scales, copy.codes[b][p][0],
                    std::make_index_sequence<kQuantBlock / 4>());
        }
        const size_t column = p * kPanelRows;
        for (size_t g = 0; g < kScales; ++g) {
          hn::StoreU(scales.scale[g], PanelTag(), copy.scales[b][g] + column);
        }
        if constexpr (kForm.has_minima) {
          hn::StoreU(scales.minus_minimum, PanelTag(), copy.minus_minima[b] + column);
        }
        if constexpr (kZerosApart) hn::StoreU(scales.zero, SumTag(), copy.zeros[b] + column);
      }
    }
  }

  template <size_t... kQuad>
  static HWY_INLINE void CopyCodes(const uint8_t* block, const Scales& scales, int8_t* to,
                                   std::index_sequence<kQuad...>) {
    const hn::Repartition<int8_t, PanelTag> db;
    SumVec zero = hn::Set(SumTag(), kForm.zero);
    if constexpr (MayHaveZeros(kType)) zero = scales.zero;
    const auto zeros = hn::BitCast(db, hn::Mul(zero, hn::Set(SumTag(), 0x01010101)));
    (hn::StoreU(hn::Sub(hn::BitCast(
                            db, Either(CodePair<kType, 2 * kQuad>(block, 0),
                                       hn::ShiftLeft<8>(CodePair<kType, 2 * kQuad + 1>(block, 0)))),
                        zeros),
                db, to + kQuad * kAmxRowBytes),
     ...);
  }

  // Panel `p` of a copy.
  class CopiedPanel {
   public:
    CopiedPanel(const WCopy& copy, size_t p) : copy_(copy), p_(p) {}
    void Begin(size_t /*block*/) {}
    const Codes* CodesOf(size_t block) const { return copy_.codes[block][p_]; }
    PanelVec Scale(size_t block, size_t g) const {
      return hn::LoadU(PanelTag(), copy_.scales[block][g] + p_ * kPanelRows);
    }
    PanelVec MinusMinimum(size_t block) const {
      return hn::LoadU(PanelTag(), copy_.minus_minima[block] + p_ * kPanelRows);
    }
    SumVec Zero(size_t block) const {
      return hn::LoadU(SumTag(), copy_.zeros[block] + p_ * kPanelRows);
    }

   private:
    const WCopy& copy_;
    size_t p_;
  };

  // A panel in memory, read from the first block to the last.
  class StreamedPanel {
   public:
    StreamedPanel(const QuantAmxTile& tile, const uint8_t* panel)
        : tile_(tile), panel_(panel), walk_(tile.layout(), 0) {}
    // Reads the next block. What the functions below return of it lasts until the next but one.
    void Begin(size_t block) {
      const uint8_t* const at = panel_ + walk_.block;
      Scales& scales = scales_[block % 2];
      scales = Scales::Of(tile_.encoding, panel_, walk_, 0);
      if constexpr (kForm.bits == 8) {
        codes_[block % 2] = reinterpret_cast<const Codes*>(at);
      } else {
        codes_[block % 2] = room_[block % 2];
        CopyCodes(at, scales, room_[block % 2][0], std::make_index_sequence<kQuantBlock / 4>());
      }
      PrefetchCodes<kType>(at + kAhead);
      walk_.Next(tile_.layout());
    }
    const Codes* CodesOf(size_t block) const { return codes_[block % 2]; }
    PanelVec Scale(size_t block, size_t g) const { return scales_[block % 2].scale[g]; }
    PanelVec MinusMinimum(size_t block) const { return scales_[block % 2].minus_minimum; }
    SumVec Zero(size_t block) const { return scales_[block % 2].zero; }

   private:
    static constexpr size_t kAhead = 4096;  // bytes

    const QuantAmxTile& tile_;
    const uint8_t* panel_;
    BlockWalk walk_;
    Scales scales_[2];
    const Codes* codes_[2];
    alignas(kAmxRowBytes) Codes room_[2][kScales];
  };

  // c: [kRows][kWidth], overwritten if first is 0, else accumulated.
  void Mul(size_t n_rows, const uint8_t* x_copy, const uint8_t* w_copy, size_t first, size_t n,
           float* c) const {
    const WCopy& copy = *reinterpret_cast<const WCopy*>(w_copy);
    const AmxTiles tiles(kAtOnce);
    for (size_t p = 0; p < kGroup; ++p) {
      CopiedPanel panel(copy, p);
      MulRows(n_rows, x_copy, panel, n / kQuantBlock, first > 0, c + p * kPanelRows, kWidth);
    }
  }

  // c[n_rows, n_panels * 16] = n_rows <= kRows rows (one XCopy per kInputs inputs) times the
  // panels.
  void MulFew(size_t n_rows, const uint8_t* x_copies, const uint8_t* const* panels, size_t n_panels,
              float* c, size_t c_stride) const {
    const AmxTiles tiles(kAtOnce);
    for (size_t p = 0; p < n_panels; ++p) {
      StreamedPanel panel(*this, panels[p]);
      MulRows(n_rows, x_copies, panel, this->k / kQuantBlock, false, c + p * kPanelRows, c_stride);
    }
  }

  template <size_t kN = kRows, typename Panel>
  void MulRows(size_t n_rows, const uint8_t* x_copies, Panel& panel, size_t n_blocks,
               bool accumulate, float* c, size_t c_stride) const {
    if constexpr (kN > kRowStep) {
      if (n_rows <= kN - kRowStep) {
        return MulRows<kN - kRowStep>(n_rows, x_copies, panel, n_blocks, accumulate, c, c_stride);
      }
    }
    if constexpr (kZerosApart) {
      if (this->encoding.has_zeros) {
        return MulPanel<kN, true>(x_copies, panel, n_blocks, accumulate, c, c_stride);
      }
    }
    MulPanel<kN, false>(x_copies, panel, n_blocks, accumulate, c, c_stride);
  }

  // The integer sums of 16 rows and a panel, by high and low bytes of x.
  struct Sums {
    alignas(kAmxRowBytes) int32_t high[kRows][kPanelRows];
    alignas(kAmxRowBytes) int32_t low[kRows][kPanelRows];
  };

  static const XCopy& CopyOf(const uint8_t* x_copies, size_t block) {
    return *reinterpret_cast<const XCopy*>(x_copies + block / kBlocks * kXBytes);
  }

  // Begins the integer sums number i, with tiles that no other kTurn uses.
  template <int kTurn, typename Panel>
  static HWY_INLINE void Multiply(const uint8_t* x_copies, Panel& panel, size_t i, Sums& sums) {
    const size_t block = i / kScales, b = block % kBlocks, g = i % kScales;
    if (g == 0) panel.Begin(block);
    const XCopy& xs = CopyOf(x_copies, block);
    ZeroTile<2 * kTurn>();
    ZeroTile<2 * kTurn + 1>();
    LoadTile<6 + kTurn>(panel.CodesOf(block)[g]);
    LoadTile<4>(xs.high[b][g], kAtOnce);
    AddSignedProducts<2 * kTurn, 4, 6 + kTurn>();
    LoadTile<5>(xs.low[b][g], kAtOnce);
    AddUnsignedProducts<2 * kTurn + 1, 5, 6 + kTurn>();
    StoreTile<2 * kTurn>(sums.high);
    StoreTile<2 * kTurn + 1>(sums.low);
  }

  // Scales the integer sums number i, and adds them to the totals.
  template <bool kZeros, size_t kN, typename Panel>
  static HWY_INLINE void Add(const uint8_t* x_copies, const Panel& panel, size_t i,
                             const Sums& sums, PanelVec (&total)[kN]) {
    const SumTag ds;
    const size_t block = i / kScales, b = block % kBlocks;
    const XCopy& xs = CopyOf(x_copies, block);
    const PanelVec scale = panel.Scale(block, i % kScales);
#pragma GCC unroll 16
    for (size_t r = 0; r < kN; ++r) {
      SumVec sum = hn::Add(hn::ShiftLeft<8>(hn::Load(ds, sums.high[r])), hn::Load(ds, sums.low[r]));
      if constexpr (kZeros) {
        sum = hn::Add(sum, hn::Mul(panel.Zero(block), hn::Set(ds, xs.minus_totals[b][r])));
      }
      total[r] = Few::Product::Scaled(sum, scale, xs.scales[b][r], total[r]);
      if constexpr (kForm.has_minima) {
        total[r] =
            hn::MulAdd(panel.MinusMinimum(block), hn::Set(PanelTag(), xs.sums[b][r]), total[r]);
      }
    }
  }

  // kN rows times a panel. While vectors scale and add sums, the tiles compute the next ones.
  template <size_t kN, bool kZeros, typename Panel>
  static HWY_NOINLINE void MulPanel(const uint8_t* x_copies, Panel& panel, size_t n_blocks,
                                    bool accumulate, float* HWY_RESTRICT c, size_t c_stride) {
    const PanelTag d;
    Sums even, odd;
    PanelVec total[kN];
#pragma GCC unroll 16
    for (size_t r = 0; r < kN; ++r) {
      total[r] = accumulate ? hn::LoadU(d, c + r * c_stride) : hn::Zero(d);
    }
    const size_t end = n_blocks * kScales;
    Multiply<0>(x_copies, panel, 0, even);
    for (size_t i = 0; i < end; i += 2) {
      if (i + 1 < end) Multiply<1>(x_copies, panel, i + 1, odd);
      Add<kZeros, kN>(x_copies, panel, i, even, total);
      if (i + 1 == end) break;
      if (i + 2 < end) Multiply<0>(x_copies, panel, i + 2, even);
      Add<kZeros, kN>(x_copies, panel, i + 1, odd, total);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < kN; ++r) hn::StoreU(total[r], d, c + r * c_stride);
  }
};

#endif  // HWY_AVX3

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
