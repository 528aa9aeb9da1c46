#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
// clang-format off
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// x * erfc(-x / sqrt(2)) / 2, with erfc(t) = exp(-t^2) u P(u) and u = 1 / (1 + t / 2) for t >= 0. P
// is the Chebyshev interpolant of degree 8 of exp(t^2) erfc(t) / u on 0.13 <= u <= 1. The relative
// error is 2e-7 there; for smaller u, exp(-t^2) is 0.
template <class D, class V>
HWY_INLINE V Gelu(D d, V x) {
  const V t = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f));
  const V u = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(t, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
  V p = hn::Set(d, -0.060755953f);
  p = hn::MulAdd(p, u, hn::Set(d, 0.292480745f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.502796995f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.294902502f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.0374390945f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.206893684f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.242141465f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.282493066f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.282080529f));
  const V half_erfc =
      hn::Mul(hn::Mul(hn::Exp(d, hn::Neg(hn::Mul(t, t))), hn::Mul(u, p)), hn::Set(d, 0.5f));
  const V tail = hn::Mul(x, half_erfc);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(x, tail), tail);
}

// 0.5 x (1 + tanh(y)) = x sigmoid(2 y), y = sqrt(2 / pi) (x + 0.044715 x^3)
template <class D, class V>
HWY_INLINE V GeluTanh(D d, V x) {
  const V cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
  const V two_y = hn::Mul(hn::Mul(x, hn::Set(d, 1.59576912f)), cubic);
  return hn::Mul(x, Sigmoid(d, two_y));
}

template <Activation kKind, class D, class V>
HWY_INLINE V Activated(D d, V x) {
  if constexpr (kKind == Activation::kRelu) return hn::Max(x, hn::Zero(d));
  if constexpr (kKind == Activation::kReluSquared) {
    const V positive = hn::Max(x, hn::Zero(d));
    return hn::Mul(positive, positive);
  }
  if constexpr (kKind == Activation::kGelu) return Gelu(d, x);
  if constexpr (kKind == Activation::kGeluTanh) return GeluTanh(d, x);
  if constexpr (kKind == Activation::kSilu) return hn::Mul(x, Sigmoid(d, x));
}

// x, up (or null) and out: [n]; out may alias x. Returns the index of the first element not done.
template <Activation kKind, size_t kLanes>
HWY_INLINE size_t ActivateSpan(const float* x, const float* up, float* out, size_t i, size_t n) {
  const hn::CappedTag<float, kLanes> d;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    auto value = Activated<kKind>(d, hn::LoadU(d, x + i));
    if (up != nullptr) value = hn::Mul(value, hn::LoadU(d, up + i));
    hn::StoreU(value, d, out + i);
  }
  return i;
}

template <Activation kKind>
absl::Status ActivateOf(const ActivationArgs& args, CpuContext& context) {
  const size_t width = static_cast<size_t>(args.width);
  RunPieces(*context.pool, static_cast<size_t>(args.n_rows), width,
            [&](size_t begin, size_t end) HWY_ATTR {
              for (size_t row = begin; row < end; ++row) {
                const float* const x = args.x.f32() + row * width * (args.gated ? 2 : 1);
                const float* const up = args.gated           ? x + width
                                        : args.up != nullptr ? args.up + row * args.up_stride
                                                             : nullptr;
                float* const out = args.out.f32() + row * width;
                const size_t done = ActivateSpan<kKind, 16>(x, up, out, 0, width);
                ActivateSpan<kKind, 1>(x, up, out, done, width);
              }
            });
  return absl::OkStatus();
}

// x, up and out: [n]. Returns the index of the first element not done.
template <size_t kLanes>
HWY_INLINE size_t ClampedGluSpan(const ClampedGlu& glu, const float* x, const float* up, float* out,
                                 size_t i, size_t n) {
  const hn::CappedTag<float, kLanes> d;
  const auto most = hn::Set(d, glu.limit), least = hn::Set(d, -glu.limit);
  const auto slope = hn::Set(d, glu.slope), one = hn::Set(d, 1.0f);
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto g = hn::Min(hn::LoadU(d, x + i), most);
    const auto u = hn::Max(hn::Min(hn::LoadU(d, up + i), most), least);
    const auto activated = hn::Mul(g, Sigmoid(d, hn::Mul(slope, g)));
    hn::StoreU(hn::Mul(activated, hn::Add(one, u)), d, out + i);
  }
  return i;
}

absl::Status ActivateClamped(const ActivationArgs& args, CpuContext& context) {
  const size_t width = static_cast<size_t>(args.width);
  RunPieces(*context.pool, static_cast<size_t>(args.n_rows), width,
            [&](size_t begin, size_t end) HWY_ATTR {
              for (size_t row = begin; row < end; ++row) {
                const float* const x = args.x.f32() + row * width * 2;
                float* const out = args.out.f32() + row * width;
                const size_t done = ClampedGluSpan<16>(args.clamped, x, x + width, out, 0, width);
                ClampedGluSpan<1>(args.clamped, x, x + width, out, done, width);
              }
            });
  return absl::OkStatus();
}

absl::Status Activate(const ActivationArgs& args, CpuContext& context) {
  if (args.gated && args.clamped.limit > 0) return ActivateClamped(args, context);
  switch (args.kind) {
    case Activation::kRelu:
      return ActivateOf<Activation::kRelu>(args, context);
    case Activation::kReluSquared:
      return ActivateOf<Activation::kReluSquared>(args, context);
    case Activation::kGelu:
      return ActivateOf<Activation::kGelu>(args, context);
    case Activation::kGeluTanh:
      return ActivateOf<Activation::kGeluTanh>(args, context);
    case Activation::kSilu:
      return ActivateOf<Activation::kSilu>(args, context);
  }
  return absl::OkStatus();
}

template <size_t kLanes>
HWY_INLINE size_t SoftCapSpan(float* x, size_t i, size_t n, float cap) {
  const hn::CappedTag<float, kLanes> d;
  const auto cap_vector = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), inverse);
    hn::StoreU(hn::Mul(cap_vector, hn::Tanh(d, scaled)), d, x + i);
  }
  return i;
}

absl::Status SoftCap(const SoftCapArgs& args, CpuContext& context) {
  RunPieces(*context.pool, static_cast<size_t>(args.n), 1, [&](size_t begin, size_t end) HWY_ATTR {
    const size_t done = SoftCapSpan<16>(args.x, begin, end, args.cap);
    SoftCapSpan<1>(args.x, done, end, args.cap);
  });
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(Activate);
HWY_EXPORT(SoftCap);

CpuKernel<ActivationArgs> ChooseActivation() { return &HWY_DYNAMIC_DISPATCH(Activate); }
CpuKernel<SoftCapArgs> ChooseSoftCap() { return &HWY_DYNAMIC_DISPATCH(SoftCap); }

}  // namespace stagecoach::kernels
#endif
