// Keys and values of FP8 caches (common/kv_fp8.h) as float32 panels: code times scale, which is
// exact. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_KV_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_KV_FP8_INL_H_
#undef STAGECOACH_KERNELS_CPU_KV_FP8_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_KV_FP8_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// A shifted code is a float that is too small by this factor, also if the code is subnormal.
inline constexpr float kFp8Shift = 0x1p120f;

// As many codes as d has lanes, shifted.
template <class D>
HWY_INLINE hn::Vec<D> ShiftedFp8(D d, const uint8_t* codes) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int8_t, D> d8;
  // The sign goes from the lowest byte to all higher bits.
  const auto words = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
  const auto mask = hn::Set(di, static_cast<int32_t>(0x87f00000u));
  return hn::BitCast(d, hn::And(hn::ShiftLeft<20>(words), mask));
}

inline constexpr size_t kCacheLine = 64;  // bytes

// head: the keys of a head of a block. to: [head_dim, 16]. Prefetches the codes of another head,
// `next`: heads lie apart, so the hardware does not.
HWY_INLINE void WidenFp8Keys(const uint8_t* head, const uint8_t* next, size_t head_dim,
                             float* HWY_RESTRICT to) {
  const PanelTag d;
  const hn::RebindToUnsigned<PanelTag> du;
  const hn::Rebind<uint16_t, PanelTag> d16;
  const auto* const bits = reinterpret_cast<const uint16_t*>(head + KvFp8CodeBytes(head_dim));
  PanelVec scale[kPanelVecs];
  for (size_t v = 0; v < kPanelVecs; ++v) {
    const auto wide = hn::PromoteTo(du, hn::LoadU(d16, bits + v * kPanelLanes));
    scale[v] = hn::Mul(hn::BitCast(d, hn::ShiftLeft<16>(wide)), hn::Set(d, kFp8Shift));
  }
  for (size_t i = 0; i < head_dim * kBlock; i += kBlock) {
    if (i % kCacheLine == 0) hwy::Prefetch(next + i);
    for (size_t v = 0; v < kPanelVecs; ++v) {
      const size_t at = i + v * kPanelLanes;
      hn::Store(hn::Mul(ShiftedFp8(d, head + at), scale[v]), d, to + at);
    }
  }
}

// head: the values of a head of a block. to: [head_dim / 16, 16, 16], and a narrower last panel.
// next: as above
HWY_INLINE void WidenFp8Values(const uint8_t* head, const uint8_t* next, size_t head_dim,
                               float* HWY_RESTRICT to) {
  const PanelTag d;
  const hn::CappedTag<float, 1> d1;
  const auto* const bits = reinterpret_cast<const uint16_t*>(head + KvFp8CodeBytes(head_dim));
  float scales[kBlock];
  for (size_t t = 0; t < kBlock; ++t) scales[t] = KvFp8Scale(bits[t]) * kFp8Shift;
  const size_t full = head_dim / kPanelRows * kPanelRows, rest = head_dim - full;
  for (size_t strip = 0; strip < full; strip += kPanelRows) {
    for (size_t t = 0; t < kBlock; ++t) {
      const size_t row = strip * kBlock + t * kPanelRows;
      if (row % kCacheLine == 0) hwy::Prefetch(next + row);
      for (size_t v = 0; v < kPanelVecs; ++v) {
        const size_t at = row + v * kPanelLanes;
        hn::Store(hn::Mul(ShiftedFp8(d, head + at), hn::Set(d, scales[t])), d, to + at);
      }
    }
  }
  for (size_t i = 0; i < rest * kBlock; ++i) {
    const size_t at = full * kBlock + i;
    hn::Store(hn::Mul(ShiftedFp8(d1, head + at), hn::Set(d1, scales[i / rest])), d1, to + at);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
