// The logistic function of a vector. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_SIGMOID_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_SIGMOID_INL_H_
#undef STAGECOACH_KERNELS_CPU_SIGMOID_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_SIGMOID_INL_H_
#endif

// clang-format off
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 1 / (1 + exp(-x)). Highway's Exp is undefined above 104; exp(88) is near the largest float.
template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  const V e = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), e));
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
