// What the tests of the CPU's kernels share beside other devices' tests.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_ops.h"
#include "kernels/testing/values.h"

namespace stagecoach::kernels {

// The instruction sets that this machine runs, by their names in STAGECOACH_CPU_TARGET.
inline std::unique_ptr<Ops> MakeCpuOpsFor(const std::string& target, int32_t n_threads) {
  setenv("STAGECOACH_CPU_TARGET", target.c_str(), 1);
  auto ops = MakeCpuOps({.n_threads = n_threads});
  unsetenv("STAGECOACH_CPU_TARGET");
  return ops;
}

inline std::vector<std::string> RunnableTargets() {
  std::vector<std::string> targets = {"baseline"};
  std::string last = MakeCpuOpsFor("baseline", 1)->Describe();
  for (const char* target : {"sse4", "avx2", "avx512"}) {
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
