// What the kernel tests share: seeded data, matrices on two devices, comparison.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::kernels {

inline std::vector<float> RandomFloats(size_t n, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

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

// [rows, cols] of `dtype` from float values
inline Matrix PackedMatrix(Ops& ops, int32_t rows, int32_t cols, DType dtype,
                           const std::vector<float>& values) {
  Matrix matrix = *ops.NewMatrix(rows, cols, dtype);
  ops.PackRows(matrix, 0, rows, values.data(), DType::kF32);
  return matrix;
}

// The largest |a - b| / (|b| + floor).
inline double WorstError(const std::vector<float>& a, const std::vector<float>& b,
                         double floor = 1.0) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(static_cast<double>(a[i]) - b[i]) / (std::abs(b[i]) + floor);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

inline bool SameBits(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

}  // namespace stagecoach::kernels
