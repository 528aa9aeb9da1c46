// Shared by the CPU kernel tests, in addition to kernels/testing/values.h.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_ops.h"
#include "kernels/testing/rounded_inputs.h"
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

inline bool SameBits(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

}  // namespace stagecoach::kernels
