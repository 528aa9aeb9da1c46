// Dispatch from a run-time dtype to a compile-time type.
#pragma once

#include "common/check.h"
#include "common/dtype.h"
#include "kernels/cuda/device/numbers.h"

namespace stagecoach::kernels::cuda {

// Calls call(T{}) with the type T of `dtype` and returns its result.
template <typename Call>
auto WithType(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::kBF16:
      return call(BF16{});
    case DType::kF16:
      return call(F16{});
    case DType::kF32:
      break;
    case DType::kFp8:
      SC_CHECK(false);  // no type of numbers: see WithKvType
  }
  return call(float{});
}

// Calls call(F{}, T{}). At least one of the two dtypes must be float32: all nine pairs would need
// nine instances of every kernel.
template <typename Call>
auto WithTypes(DType from, DType to, const Call& call) {
  SC_CHECK(from == DType::kF32 || to == DType::kF32);
  if (to == DType::kF32) return WithType(from, [&](auto type) { return call(type, float{}); });
  return to == DType::kBF16 ? call(float{}, BF16{}) : call(float{}, F16{});
}

}  // namespace stagecoach::kernels::cuda
