#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

namespace stagecoach::kernels {

// The size of a - b, relative to that of b.
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(a[i] - b[i], 2);
    size += std::pow(b[i], 2);
  }
  return std::sqrt(error / size);
}

}  // namespace stagecoach::kernels
