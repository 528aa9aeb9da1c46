// Vectorized passes of sampling over the whole vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stagecoach::kernels {

// Values are binned by their distance from the largest one, so that the order of a few tokens does
// not require a complete sort.
inline constexpr int32_t kSampleBins = 2048;

struct SampleVector {
  // Copies values to out ([n], or null) with NaN as -inf. Returns the largest value, or -inf if
  // there is none.
  float (*clean)(const float* values, size_t n, float* out);

  // Moves the values whose bits are set to the front, in order, and returns their number. The rest
  // becomes undefined. values: [n], allowed: [(n + 31) / 32]
  size_t (*keep)(const uint32_t* allowed, float* values, size_t n);

  // The smallest value above -inf; `max` if there is none.
  float (*least_finite)(const float* values, size_t n, float max);

  // Sum of exp(values - max). REQUIRES: no NaN, max finite.
  double (*sum_exp)(const float* values, size_t n, float max);

  // weights: [n] = exp((values - max) / temperature)
  // bins: [n] = (max - values) * bins_per_unit, at most kSampleBins - 1. A smaller value never gets
  // a smaller bin.
  // REQUIRES: no NaN; max is finite.
  void (*weigh)(const float* values, size_t n, float max, double temperature, float bins_per_unit,
                double* weights, uint16_t* bins);
};

// For Highway's chosen target at the time of the call; see cpu_target.h.
SampleVector ChooseSampleVector();

}  // namespace stagecoach::kernels
