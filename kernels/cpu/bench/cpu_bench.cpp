#include "kernels/cpu/bench/cpu_bench.h"

#include <cmath>
#include <random>

namespace stagecoach::kernels {

std::vector<float> RandomFloats(size_t n, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> block(std::min<size_t>(n, 1 << 20)), values(n);
  for (float& value : block) value = normal(random);
  for (size_t i = 0; i < n; ++i) values[i] = block[i % block.size()];
  return values;
}

void CheckClose(const std::vector<float>& values, const std::vector<float>& expected) {
  SC_CHECK(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    SC_CHECK(std::abs(values[i] - expected[i]) < 1e-4f * (4 + std::abs(expected[i])));
  }
}

}  // namespace stagecoach::kernels
