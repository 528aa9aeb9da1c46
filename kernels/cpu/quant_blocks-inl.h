// The parts of a product with quantized weights (quant-inl.h): 32 inputs as integers, and the place
// and the scales of a panel's block of 32 inputs (quant_panel.h). Included once per instruction
// set.
#if defined(STAGECOACH_KERNELS_CPU_QUANT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_QUANT_BLOCKS_INL_H_
#undef STAGECOACH_KERNELS_CPU_QUANT_BLOCKS_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_QUANT_BLOCKS_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/pair-inl.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/cpu/quant_panel.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// Vector v of 16 float16 values.
HWY_INLINE PanelVec HalfScales(const uint8_t* at, size_t v) {
  const hn::Rebind<hwy::float16_t, PanelTag> dh;
  return hn::PromoteTo(
      PanelTag(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(at) + v * kPanelLanes));
}

// Vector v of 16 values of type Byte, converted to float.
template <typename Byte>
HWY_INLINE PanelVec ByteScales(const uint8_t* at, size_t v) {
  const hn::Rebind<Byte, PanelTag> db;
  const SumTag ds;
  return hn::ConvertTo(
      PanelTag(),
      hn::PromoteTo(ds, hn::LoadU(db, reinterpret_cast<const Byte*>(at) + v * kPanelLanes)));
}

// Vector v of 16 scales of `dtype`.
HWY_INLINE PanelVec ScalesOf(DType dtype, const uint8_t* at, size_t v) {
  const PanelTag d;
  if (dtype == DType::kF16) return HalfScales(at, v);
  if (dtype == DType::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(at) + v * kPanelLanes);
  }
  const hn::Rebind<uint16_t, PanelTag> dh;
  const hn::RebindToUnsigned<PanelTag> du;
  const auto halves = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(at) + v * kPanelLanes);
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, halves)));
}

// Vector v of 16 scales of MXFP4: half of 2^(byte - 127), because CodePair gives twice the codes'
// values. The smallest scale, 2^-127, counts as 0.
HWY_INLINE PanelVec PowerScales(const uint8_t* at, size_t v) {
  const PanelTag d;
  const hn::Rebind<uint8_t, PanelTag> db;
  const auto exponents = hn::PromoteTo(SumTag(), hn::LoadU(db, at + v * kPanelLanes));
  return hn::Mul(hn::BitCast(d, hn::ShiftLeft<23>(exponents)), hn::Set(d, 0.5f));
}

// Vector v of 16 scales of NVFP4 (e4m3): half of each, because CodePair gives twice the codes'
// values, times the matrix's scale.
HWY_INLINE PanelVec Fp8Scales(const uint8_t* at, const uint8_t* matrix_scale, size_t v) {
  const PanelTag d;
  const SumTag ds;
  const hn::Rebind<int8_t, PanelTag> db;
  const auto codes =
      hn::PromoteTo(ds, hn::LoadU(db, reinterpret_cast<const int8_t*>(at) + v * kPanelLanes));
  // The bits of a code in the places of a float's sign, exponent and first bits of the mantissa:
  // 2^-120 of its value, for subnormal codes, too.
  const auto mask = hn::Set(ds, static_cast<int32_t>(0x87f00000u));
  const PanelVec sizes = hn::BitCast(d, hn::And(hn::ShiftLeft<20>(codes), mask));
  return hn::Mul(hn::Mul(sizes, hn::Set(d, 0x1p119f)),
                 hn::LoadU(d, reinterpret_cast<const float*>(matrix_scale) + v * kPanelLanes));
}

// 32 inputs of a row as integers. If an input is not finite, the scale is NaN and the integers are
// 0.
struct QuantizedInputs {
  explicit QuantizedInputs(const float* from) {
    const PanelTag d;
    PanelVec largest = hn::Zero(d), not_finite = hn::Zero(d);  // not_finite: zeros, or NaN
    for (size_t i = 0; i < kQuantBlock; i += kPanelLanes) {
      const PanelVec values = hn::LoadU(d, from + i);
      largest = hn::Max(largest, hn::Abs(values));
      not_finite = hn::MulAdd(values, hn::Zero(d), not_finite);
    }
    const float zero_or_nan = hn::GetLane(hn::SumOfLanes(d, not_finite));
    if (zero_or_nan != 0) {
      std::fill_n(codes, kQuantBlock, int16_t{0});
      sums[0] = sums[1] = 0;
      scale = zero_or_nan;
      return;
    }
    constexpr float kMost = 32767;
    const float bound = hn::GetLane(hn::MaxOfLanes(d, largest));
    // A smaller bound counts as zero, because its inverse could overflow.
    const float inverse = bound > 1e-30f ? kMost / bound : 0.0f;
    const SumTag ds;
    const hn::Rebind<int16_t, PanelTag> dh;
    for (size_t g = 0; g < 2; ++g) {
      auto sum = hn::Zero(ds);
      for (size_t i = g * kQuantBlock / 2; i < (g + 1) * kQuantBlock / 2; i += kPanelLanes) {
        const PanelVec values = hn::Mul(hn::LoadU(d, from + i), hn::Set(d, inverse));
        const auto rounded = hn::NearestInt(values);
        hn::StoreU(hn::DemoteTo(dh, rounded), dh, codes + i);
        sum = hn::Add(sum, rounded);
      }
      sums[g] = hn::GetLane(hn::SumOfLanes(ds, sum));
    }
    scale = bound / kMost;
  }
  float ScaledSum() const { return scale * static_cast<float>(sums[0] + sums[1]); }

  HWY_ALIGN int16_t codes[kQuantBlock];
  int32_t sums[2];  // of 16 integers each
  float scale;
};

// Byte offsets of a superblock, and of a block of 32 inputs in it, in a panel.
class BlockWalk {
 public:
  HWY_INLINE BlockWalk(const QuantLayout& layout, size_t first_block)
      : super(layout.prefix_bytes + first_block / BlocksOfSuper(layout) * layout.super_bytes()),
        index_(first_block % BlocksOfSuper(layout)) {
    block = super + layout.header_bytes + index_ * layout.block_bytes();
  }
  HWY_INLINE void Next(const QuantLayout& layout) {
    block += layout.block_bytes();
    if (++index_ < BlocksOfSuper(layout)) return;
    index_ = 0;
    super = block;
    block += layout.header_bytes;
  }

  size_t super, block;

 private:
  static constexpr size_t BlocksOfSuper(const QuantLayout& layout) {
    return layout.super_inputs / kQuantBlock;
  }

  size_t index_;
};

// Scales of a block of 32 inputs: one vector per group of inputs, where a group has 32 or 16
// inputs.
template <Code kType>
struct BlockScales {
  static constexpr BlockForm kForm = QuantFormOf(kType);
  static constexpr size_t kGroups = kQuantBlock / kForm.group;
  PanelVec scale[kGroups];
  PanelVec minus_minimum;

  // Only if MayHaveZeros(). Other zeros are known at compile time.
  SumVec zero;

  static HWY_INLINE BlockScales Of(const Encoding& encoding, const uint8_t* panel,
                                   const BlockWalk& walk, size_t v) {
    constexpr size_t kCodeBytes = kPanelRows * kQuantBlock * kForm.bits / 8;
    const uint8_t* const super = panel + walk.super;
    const uint8_t* const sub = panel + walk.block + kCodeBytes;
    BlockScales out;
    out.zero = MayHaveZeros(kType) ? ZerosOf(encoding, super, v) : hn::Zero(SumTag());
    if constexpr (kType == Code::kNvFp4) {
      for (size_t g = 0; g < kGroups; ++g) {
        out.scale[g] = Fp8Scales(sub + g * kPanelRows, panel, v);
      }
      out.minus_minimum = out.scale[0];
      return out;
    }
    if constexpr (IsGrouped(kType)) {
      out.scale[0] =
          kType == Code::kMxFp4 ? PowerScales(super, v) : ScalesOf(encoding.scale, super, v);
      out.minus_minimum = out.scale[0];
      return out;
    }
    const PanelVec d = HalfScales(super, v);
    if constexpr (kForm.has_minima) {
      out.scale[0] = hn::Mul(d, ByteScales<uint8_t>(sub, v));
      out.minus_minimum = hn::Neg(
          hn::Mul(HalfScales(super + 2 * kPanelRows, v), ByteScales<uint8_t>(sub + kPanelRows, v)));
    } else if constexpr (kForm.has_sub_scales()) {
      for (size_t g = 0; g < kGroups; ++g) {
        out.scale[g] = hn::Mul(d, ByteScales<int8_t>(sub + g * kPanelRows, v));
      }
      out.minus_minimum = d;
    } else {
      out.scale[0] = d;
      out.minus_minimum = d;
    }
    return out;
  }

 private:
  static HWY_INLINE SumVec ZerosOf(const Encoding& encoding, const uint8_t* super, size_t v) {
    const SumTag ds;
    if (!encoding.has_zeros) return hn::Set(ds, DefaultZero(kType));
    using Byte = std::conditional_t<kType == Code::kInt8, int8_t, uint8_t>;
    const hn::Rebind<Byte, PanelTag> db;
    const uint8_t* const zeros = super + kPanelRows * DTypeBytes(encoding.scale);
    return hn::PromoteTo(ds, hn::LoadU(db, reinterpret_cast<const Byte*>(zeros) + v * kPanelLanes));
  }
};

// Prefetches the codes of a block.
template <Code kType>
HWY_INLINE void PrefetchCodes(const uint8_t* block) {
  for (size_t i = 0; i < kPanelRows * kQuantBlock * QuantFormOf(kType).bits / 8; i += 64) {
    hwy::Prefetch(block + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
