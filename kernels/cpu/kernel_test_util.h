// Shared by the CPU kernel tests, in addition to kernels/testing/values.h.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/float_convert.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_ops.h"
#include "kernels/testing/values.h"

namespace stagecoach::kernels {

// CPU ops with the instruction set `target`, as in STAGECOACH_CPU_TARGET.
inline std::unique_ptr<Ops> MakeCpuOpsFor(const std::string& target, int32_t n_threads) {
  setenv("STAGECOACH_CPU_TARGET", target.c_str(), 1);
  auto ops = MakeCpuOps({.n_threads = n_threads});
  unsetenv("STAGECOACH_CPU_TARGET");
  return ops;
}

// Names of the instruction sets that this machine can run.
inline std::vector<std::string> RunnableTargets() {
  std::vector<std::string> targets = {"baseline"};
  std::string last = MakeCpuOpsFor("baseline", 1)->Describe();
  for (const char* target : {"sse4", "avx2", "avx512", "avx512_bf16", "amx"}) {
    const std::string description = MakeCpuOpsFor(target, 1)->Describe();
    if (description != last) targets.emplace_back(target);
    last = description;
  }
  return targets;
}

// Whether products with bfloat16 weights round their inputs to bfloat16.
inline bool RoundsInputs(const Ops& ops) {
  return ops.Numerics().find("BF16") != std::string::npos;
}

// Whether products with FP8 weights do so, too.
inline bool RoundsInputsOfFp8(const Ops& ops) {
  return ops.Numerics().find("AMX") != std::string::npos;
}

// The inputs that a product with weights of `dtype` uses.
inline std::vector<float> RoundedInputs(const Ops& ops, DType dtype, std::vector<float> x) {
  if (dtype != DType::kBF16 || !RoundsInputs(ops)) return x;
  for (float& value : x) value = FloatFromBF16(BF16FromFloat(value));
  return x;
}

inline bool SameBits(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

}  // namespace stagecoach::kernels
