// The passes of sampling that go over the whole vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stagecoach::kernels {

// Values are binned by their distance from the largest, so that the order of a few can be found
// without sorting all.
inline constexpr int32_t kSampleBins = 2048;

struct SampleVector {
  // out: [n] = values with NaN as -inf, or null. Returns the largest, -inf if there is none.
  float (*clean)(const float* values, size_t n, float* out);

  // The values whose bits are set move to the front, in order; returns how many. What follows them
  // is undefined. values: [n], allowed: [(n + 31) / 32]
  size_t (*keep)(const uint32_t* allowed, float* values, size_t n);

  // The least value above -inf; `max` if there is none.
  float (*least_finite)(const float* values, size_t n, float max);

  // Sum of exp(values - max). REQUIRES: no NaN, max finite.
  double (*sum_exp)(const float* values, size_t n, float max);

  // weights: [n] = exp((values - max) / temperature)
  // bins: [n] = (max - values) * bins_per_unit, at most kSampleBins - 1; never less for a smaller
  // value REQUIRES: no NaN, max finite.
  void (*weigh)(const float* values, size_t n, float max, double temperature, float bins_per_unit,
                double* weights, uint16_t* bins);
};

// For the instruction set that Highway has chosen at the time of the call; see cpu_target.h.
SampleVector ChooseSampleVector();

}  // namespace stagecoach::kernels
