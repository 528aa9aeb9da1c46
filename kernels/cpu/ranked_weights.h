// The tokens of one row in order of descending value, lower id first among equals, sorted only
// where somebody looks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/sample_vector.h"

namespace stagecoach::kernels {

class RankedWeights {
 public:
  struct Memory {  // each [vocab], the caller's
    double* weights;
    int32_t* ids;
    uint16_t* bins;
  };
  static constexpr size_t kBytesPerToken = sizeof(double) + sizeof(int32_t) + sizeof(uint16_t);

  // values: [vocab], kept. REQUIRES: no NaN, `max` is finite and the largest of them.
  RankedWeights(const float* values, size_t vocab, float max, double temperature,
                const SampleVector& vector, const Memory& memory);

  // The number of tokens whose weight is exp(exponent) of the largest or more.
  size_t CountAtLeast(double exponent) const;
  // Sum of exp((value - max) / temperature) of the first n.
  double MassOf(size_t n);
  // The length of the shortest prefix, 1 to n, whose mass reaches `mass`; n if none does.
  size_t PrefixReaching(double mass, size_t n);
  // The first token at which the mass so far exceeds `target`; if rounding leaves none among the
  // first n, the last of them that has a mass.
  int32_t TokenAt(double target, size_t n);

 private:
  struct Bin {
    size_t count = 0;
    double mass = 0;
  };
  // A token in order, and how many come before it.
  struct Place {
    size_t rank;
    int32_t id;
  };
  // The first of the first n tokens at which done(mass including it) holds; {n, the last of them
  // that has a mass} if none. `done` sees the mass after every token or after whole bins, and stays
  // true once it is.
  template <typename Done>
  Place Walk(size_t n, const Done& done);
  // memory_.ids begins with the bin's tokens, in order.
  void SortBin(size_t bin);

  const float* const values_;
  const size_t vocab_;
  const double max_, temperature_;
  const Memory memory_;
  std::array<Bin, kSampleBins> bins_;
  size_t sorted_bin_ = kSampleBins;
};

}  // namespace stagecoach::kernels
