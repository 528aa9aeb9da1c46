// LayerNorm and RMSNorm of one row. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_NORM_INL_H_
#undef STAGECOACH_KERNELS_CPU_NORM_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_NORM_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>

#include "common/model/model_spec.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Folds f(x[i], sum) over x: [n]. The order of additions depends only on n.
template <typename F>
HWY_INLINE float SumOf(const float* HWY_RESTRICT x, size_t n, const F& f) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = f(hn::LoadU(d, x + i), sum0);
    sum1 = f(hn::LoadU(d, x + i + lanes), sum1);
    sum2 = f(hn::LoadU(d, x + i + 2 * lanes), sum2);
    sum3 = f(hn::LoadU(d, x + i + 3 * lanes), sum3);
  }
  for (; i + lanes <= n; i += lanes) sum0 = f(hn::LoadU(d, x + i), sum0);
  const hn::CappedTag<float, 1> d1;
  auto rest = hn::Zero(d1);
  for (; i < n; ++i) rest = f(hn::LoadU(d1, x + i), rest);
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return hn::GetLane(hn::SumOfLanes(d, sum)) + hn::GetLane(rest);
}

struct AddTo {
  template <typename V>
  HWY_INLINE V operator()(V x, V sum) const {
    return hn::Add(sum, x);
  }
};

struct AddSquareTo {
  float mean;
  template <typename V>
  HWY_INLINE V operator()(V x, V sum) const {
    const V centred = hn::Sub(x, hn::Set(hn::DFromV<V>(), mean));
    return hn::MulAdd(centred, centred, sum);
  }
};

template <NormKind kKind, size_t kLanes>
struct NormVector {
  float mean, scale;
  const float *weight, *bias;

  HWY_INLINE void operator()(const float* x, size_t i, float* out, bool add_to_out) const {
    const hn::CappedTag<float, kLanes> d;
    auto value = hn::LoadU(d, x + i);
    auto w = weight != nullptr ? hn::LoadU(d, weight + i) : hn::Set(d, 1.0f);
    if constexpr (kKind == NormKind::kLayerNorm) value = hn::Sub(value, hn::Set(d, mean));
    if constexpr (kKind == NormKind::kRmsPlusOne) w = hn::Add(w, hn::Set(d, 1.0f));
    value = hn::Mul(hn::Mul(value, hn::Set(d, scale)), w);
    if constexpr (kKind == NormKind::kLayerNorm) {
      if (bias != nullptr) value = hn::Add(value, hn::LoadU(d, bias + i));
    }
    if (add_to_out) value = hn::Add(hn::LoadU(d, out + i), value);
    hn::StoreU(value, d, out + i);
  }
};

template <NormKind kKind>
HWY_INLINE void NormRowOf(const float* x, const float* weight, const float* bias, size_t width,
                          float eps, float* out, bool add_to_out) {
  const float n = static_cast<float>(width);
  const float mean = kKind == NormKind::kLayerNorm ? SumOf(x, width, AddTo()) / n : 0.0f;
  const float variance = SumOf(x, width, AddSquareTo{mean}) / n;
  const float scale = 1.0f / std::sqrt(variance + eps);
  const size_t lanes = hn::Lanes(hn::CappedTag<float, 16>());
  size_t i = 0;
  for (const NormVector<kKind, 16> norm{mean, scale, weight, bias}; i + lanes <= width;
       i += lanes) {
    norm(x, i, out, add_to_out);
  }
  for (const NormVector<kKind, 1> norm{mean, scale, weight, bias}; i < width; ++i) {
    norm(x, i, out, add_to_out);
  }
}

// x, weight (or null: ones), bias (or null) and out: [width]; out may alias x.
HWY_INLINE void NormRow(const float* x, const float* weight, const float* bias, size_t width,
                        NormKind kind, float eps, float* out, bool add_to_out) {
  switch (kind) {
    case NormKind::kLayerNorm:
      return NormRowOf<NormKind::kLayerNorm>(x, weight, bias, width, eps, out, add_to_out);
    case NormKind::kRms:
      return NormRowOf<NormKind::kRms>(x, weight, nullptr, width, eps, out, add_to_out);
    case NormKind::kRmsPlusOne:
      return NormRowOf<NormKind::kRmsPlusOne>(x, weight, nullptr, width, eps, out, add_to_out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
