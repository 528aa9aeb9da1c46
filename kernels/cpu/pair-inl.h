// Vectors of pairs of 16-bit integers: inputs 2s and 2s + 1 of kPanelLanes outputs. Functions to
// extract them from packed codes (quant_panel.h) and to multiply them. Included once per
// instruction set.
#if defined(STAGECOACH_KERNELS_CPU_PAIR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_PAIR_INL_H_
#undef STAGECOACH_KERNELS_CPU_PAIR_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_PAIR_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/panel-inl.h"
#include "kernels/cpu/quant_panel.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

using SumTag = hn::RebindToSigned<PanelTag>;
using SumVec = hn::Vec<SumTag>;

inline constexpr size_t kLineBytes = 64;

// Twice the values of e2m1 codes, plus kFp4Zero.
HWY_ALIGN inline constexpr uint8_t kFp4Values[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                     12, 11, 10, 9,  8,  6,  4,  0};

#if HWY_TARGET == HWY_SCALAR  // it has no vectors of two elements

using PairVec = uint32_t;

template <int kShift, int kTo, uint16_t kMask>
PairVec Bits(PairVec halves) {
  const PairVec moved = kShift > kTo ? halves >> (kShift - kTo) : halves << (kTo - kShift);
  return moved & (PairVec{kMask} << kTo) * 0x10001u;
}
inline PairVec LoadPairs(const void* from) {
  PairVec pairs;
  std::memcpy(&pairs, from, sizeof(pairs));
  return pairs;
}
inline void StorePairs(PairVec pairs, void* to) { std::memcpy(to, &pairs, sizeof(pairs)); }
template <bool kHigh>
PairVec SignedBytes(PairVec halves) {
  const auto extend = [](PairVec half) {
    return static_cast<uint16_t>(static_cast<int8_t>(kHigh ? half >> 8 : half));
  };
  return extend(halves & 0xffff) | PairVec{extend(halves >> 16)} << 16;
}
inline PairVec ValuesIn(const uint8_t* table, PairVec codes) {
  return table[codes & 15] | PairVec{table[codes >> 16 & 15]} << 16;
}
inline PairVec Either(PairVec a, PairVec b) { return a | b; }
template <bool kDots>
void MulPair(int32_t x, PairVec w, SumVec& even, SumVec&) {
  const uint32_t bits = static_cast<uint32_t>(x);
  even.raw += static_cast<int16_t>(bits) * static_cast<int16_t>(w) +
              static_cast<int16_t>(bits >> 16) * static_cast<int16_t>(w >> 16);
}
inline SumVec BothSums(SumVec even, SumVec) { return even; }

#else

using PairTag = hn::Repartition<int16_t, PanelTag>;
using PairVec = hn::Vec<PairTag>;

// Extracts bits [kShift, ...) of each 16-bit half, moves them to kTo and masks them.
template <int kShift, int kTo, uint16_t kMask>
HWY_INLINE PairVec Bits(PairVec halves) {
  const hn::RebindToUnsigned<PairTag> du;
  const auto mask = hn::Set(du, static_cast<uint16_t>(kMask << kTo));
  auto bits = hn::BitCast(du, halves);
  if constexpr (kShift > kTo) bits = hn::ShiftRight<kShift - kTo>(bits);
  if constexpr (kShift < kTo) bits = hn::ShiftLeft<kTo - kShift>(bits);
  // No mask is needed if these are the highest bits of the half.
  if constexpr (kTo == 0 && (0xffff >> kShift) <= kMask) return hn::BitCast(PairTag(), bits);
  return hn::BitCast(PairTag(), hn::And(bits, mask));
}
HWY_INLINE PairVec LoadPairs(const void* from) {
  return hn::LoadU(PairTag(), static_cast<const int16_t*>(from));
}
HWY_INLINE void StorePairs(PairVec pairs, void* to) {
  hn::StoreU(pairs, PairTag(), static_cast<int16_t*>(to));
}
// The low or the high byte of each half, sign-extended.
template <bool kHigh>
HWY_INLINE PairVec SignedBytes(PairVec halves) {
  return hn::ShiftRight<8>(kHigh ? halves : hn::ShiftLeft<8>(halves));
}
// The values of the code in each half. table: [16], aligned
HWY_INLINE PairVec ValuesIn(const uint8_t* table, PairVec codes) {
  const hn::Repartition<uint8_t, PairTag> db;
  const auto values = hn::TableLookupBytes(hn::LoadDup128(db, table), hn::BitCast(db, codes));
  return hn::And(hn::BitCast(PairTag(), values), hn::Set(PairTag(), int16_t{0xff}));
}
HWY_INLINE PairVec Either(PairVec a, PairVec b) { return hn::Or(a, b); }
// Adds the products of both inputs to the sums. The instruction set decides which sum gets which
// product. kDots: with AVX-512's extension VNNI, for which Highway has no target.
template <bool kDots>
HWY_INLINE void MulPair(int32_t x, PairVec w, SumVec& even, SumVec& odd) {
  const PairVec pair = hn::BitCast(PairTag(), hn::Set(SumTag(), x));
#if HWY_TARGET == HWY_AVX3
  if constexpr (kDots) {
    asm("vpdpwssd %2, %1, %0" : "+v"(even.raw) : "v"(pair.raw), "v"(w.raw));
    return;
  }
#endif
  even = hn::ReorderWidenMulAccumulate(SumTag(), w, pair, even, odd);
}
HWY_INLINE SumVec BothSums(SumVec even, SumVec odd) {
  return hn::RearrangeToOddPlusEven(even, odd);
}

#endif

// Codes of inputs 2s and 2s + 1 of a block of 32, for s = kPair and vector v of the panel. 8-bit
// codes are signed. For codes of tables: their values there.
template <Code kType, size_t kPair>
HWY_INLINE PairVec CodePair(const uint8_t* block, size_t v) {
  constexpr size_t kBits = QuantFormOf(kType).bits;
  constexpr int s = static_cast<int>(kPair);
  const auto line = [&](size_t i) HWY_ATTR {
    return LoadPairs(block + i * kLineBytes + v * kPanelLanes * sizeof(uint32_t));
  };
  if constexpr (kBits == 8) {
    return SignedBytes < kPair % 2 == 1 > (line(kPair / 2));
  } else if constexpr (IsFp4(kType)) {
    return ValuesIn(kFp4Values, Bits<s % 4 * 4, 0, 15>(line(kPair / 4)));
  } else if constexpr (QuantFormOf(kType).has_table) {
    return ValuesIn(kIQ4Values, Bits<s % 4 * 4, 0, 15>(line(kPair / 4)));
  } else if constexpr (kBits == 4) {
    return Bits<s % 4 * 4, 0, 15>(line(kPair / 4));
  } else if constexpr (kBits == 5 && kPair < 15) {
    return Bits<s % 3 * 5, 0, 31>(line(kPair / 3));
  } else if constexpr (kBits == 5) {
    const PairVec low = Either(Bits<15, 0, 1>(line(0)), Bits<15, 1, 1>(line(1)));
    const PairVec middle = Either(Bits<15, 2, 1>(line(2)), Bits<15, 3, 1>(line(3)));
    return Either(Either(low, middle), Bits<15, 4, 1>(line(4)));
  } else {
    constexpr size_t kFirst = kPair / 8 * 3;
    constexpr int kOfHalf = s % 8;
    if constexpr (kOfHalf < 6) {
      return Bits<kOfHalf % 2 * 6, 0, 63>(line(kFirst + kOfHalf / 2));
    } else {
      return Either(Bits<12, 0, 15>(line(kFirst + kOfHalf - 6)),
                    Bits<12 + (kOfHalf - 6) * 2, 4, 3>(line(kFirst + 2)));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
