// From a dtype at run time to a type at compile time.
#pragma once

#include "common/check.h"
#include "common/dtype.h"
#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

// call(T{}) with T of `dtype`; gives what it gives.
template <typename Call>
auto WithType(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::kBF16:
      return call(BF16{});
    case DType::kF16:
      return call(F16{});
    case DType::kF32:
      break;
  }
  return call(float{});
}

// call(F{}, T{}) where at least one of the two is float32: a kernel for every pair would be nine.
template <typename Call>
auto WithTypes(DType from, DType to, const Call& call) {
  SC_CHECK(from == DType::kF32 || to == DType::kF32);
  if (to == DType::kF32) return WithType(from, [&](auto type) { return call(type, float{}); });
  return to == DType::kBF16 ? call(float{}, BF16{}) : call(float{}, F16{});
}

}  // namespace stagecoach::kernels::cuda
