// Shared by the tests and benchmarks of operations: which products round their inputs to bfloat16.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/encoding/encoding.h"
#include "common/float_convert.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

// Whether products with such weights round their inputs.
inline bool RoundsInputs(const Ops& ops, Code code = Code::kBF16) {
  if (code != Code::kBF16 && code != Code::kFp8) return false;
  return ops.Numerics().find(code == Code::kFp8 ? "AMX" : "BF16") != std::string::npos;
}

// The inputs that a product with such weights uses.
inline std::vector<float> RoundedInputs(const Ops& ops, Code code, std::vector<float> x) {
  if (!RoundsInputs(ops, code)) return x;
  for (float& value : x) value = FloatFromBF16(BF16FromFloat(value));
  return x;
}

}  // namespace stagecoach::kernels
