#include "kernels/cpu/sample_vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sample_vector.cpp"
// clang-format off
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kLeast = -std::numeric_limits<float>::infinity();

float Clean(const float* values, size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  const auto least = hn::Set(d, kLeast);
  auto max = least;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto raw = hn::LoadU(d, values + i);
    const auto value = hn::IfThenElse(hn::IsNaN(raw), least, raw);
    if (out != nullptr) hn::StoreU(value, d, out + i);
    max = hn::Max(max, value);
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, max));
  for (; i < n; ++i) {
    const float value = std::isnan(values[i]) ? kLeast : values[i];
    if (out != nullptr) out[i] = value;
    result = std::max(result, value);
  }
  return result;
}

size_t Keep(const uint32_t* allowed, float* values, size_t n) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  size_t kept = 0;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    uint32_t word = allowed[i / 32];
    // Storing a whole vector is safe: it ends at or before the end of the values already read.
    for (size_t at = i; word != 0; at += lanes, word >>= lanes) {
      uint8_t bits[8] = {static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8)};
      if (lanes < 8) bits[0] &= static_cast<uint8_t>((1u << lanes) - 1);
      kept += hn::CompressBitsStore(hn::LoadU(d, values + at), bits, d, values + kept);
    }
  }
  for (; i < n; ++i) {
    if ((allowed[i / 32] >> (i % 32) & 1) != 0) values[kept++] = values[i];
  }
  return kept;
}

float LeastFinite(const float* values, size_t n, float max) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  const auto infinite = hn::Set(d, kLeast), top = hn::Set(d, max);
  auto least = top;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto value = hn::LoadU(d, values + i);
    least = hn::Min(least, hn::IfThenElse(hn::Eq(value, infinite), top, value));
  }
  float result = hn::GetLane(hn::MinOfLanes(d, least));
  for (; i < n; ++i) {
    if (values[i] != kLeast) result = std::min(result, values[i]);
  }
  return result;
}

double SumExp(const float* values, size_t n, float max) {
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, hn::CappedTag<double, 8>> df;
  const size_t lanes = hn::Lanes(dd);
  const auto top = hn::Set(df, max);
  auto sum0 = hn::Zero(dd), sum1 = hn::Zero(dd);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto e0 = hn::Exp(df, hn::Sub(hn::LoadU(df, values + i), top));
    const auto e1 = hn::Exp(df, hn::Sub(hn::LoadU(df, values + i + lanes), top));
    sum0 = hn::Add(sum0, hn::PromoteTo(dd, e0));
    sum1 = hn::Add(sum1, hn::PromoteTo(dd, e1));
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += std::exp(static_cast<double>(values[i]) - static_cast<double>(max));
  return sum;
}

template <size_t kLanes>
HWY_INLINE size_t WeighSpan(const float* values, size_t i, size_t n, float max, double temperature,
                            float bins_per_unit, double* weights, uint16_t* bins) {
  const hn::CappedTag<double, kLanes> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::Rebind<int32_t, decltype(dd)> di;
  const hn::Rebind<uint16_t, decltype(dd)> du16;
  const size_t lanes = hn::Lanes(dd);
  const auto top = hn::Set(df, max), scale = hn::Set(df, bins_per_unit);
  const auto last = hn::Set(df, static_cast<float>(kSampleBins - 1));
  const auto top_double = hn::Set(dd, static_cast<double>(max));
  const auto divisor = hn::Set(dd, temperature);
  for (; i + lanes <= n; i += lanes) {
    const auto value = hn::LoadU(df, values + i);
    const auto bin = hn::Min(hn::Mul(hn::Sub(top, value), scale), last);
    hn::StoreU(hn::DemoteTo(du16, hn::ConvertTo(di, bin)), du16, bins + i);
    const auto below = hn::Sub(hn::PromoteTo(dd, value), top_double);
    hn::StoreU(hn::Exp(dd, hn::Div(below, divisor)), dd, weights + i);
  }
  return i;
}

void Weigh(const float* values, size_t n, float max, double temperature, float bins_per_unit,
           double* weights, uint16_t* bins) {
  const size_t done = WeighSpan<8>(values, 0, n, max, temperature, bins_per_unit, weights, bins);
  WeighSpan<1>(values, done, n, max, temperature, bins_per_unit, weights, bins);
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(Clean);
HWY_EXPORT(Keep);
HWY_EXPORT(LeastFinite);
HWY_EXPORT(SumExp);
HWY_EXPORT(Weigh);

SampleVector ChooseSampleVector() {
  return {.clean = &HWY_DYNAMIC_DISPATCH(Clean),
          .keep = &HWY_DYNAMIC_DISPATCH(Keep),
          .least_finite = &HWY_DYNAMIC_DISPATCH(LeastFinite),
          .sum_exp = &HWY_DYNAMIC_DISPATCH(SumExp),
          .weigh = &HWY_DYNAMIC_DISPATCH(Weigh)};
}

}  // namespace stagecoach::kernels
#endif
