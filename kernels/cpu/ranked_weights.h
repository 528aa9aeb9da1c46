// The tokens of one row in descending order of value, the lower id first on a tie. Only the bins
// that are needed get sorted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/sample_vector.h"

namespace stagecoach::kernels {

class RankedWeights {
 public:
  struct Memory {  // [vocab] each, owned by the caller
    double* weights;
    int32_t* ids;
    uint16_t* bins;
  };
  static constexpr size_t kBytesPerToken = sizeof(double) + sizeof(int32_t) + sizeof(uint16_t);

  // values: [vocab], must outlive this object. REQUIRES: no NaN; `max` is finite and the largest
  // value.
  RankedWeights(const float* values, size_t vocab, float max, double temperature,
                const SampleVector& vector, const Memory& memory);

  // Number of tokens with a weight of at least exp(exponent) times the largest weight.
  size_t CountAtLeast(double exponent) const;
  // Sum of exp((value - max) / temperature) over the first n tokens.
  double MassOf(size_t n);
  // Length of the shortest prefix, from 1 to n, with a mass of at least `mass`; n if there is none.
  size_t PrefixReaching(double mass, size_t n);
  // The first token at which the cumulative mass exceeds `target`. If rounding prevents that for
  // the first n tokens, the last of them with a positive mass.
  int32_t TokenAt(double target, size_t n);

 private:
  struct Bin {
    size_t count = 0;
    double mass = 0;
  };
  // A token, and the number of tokens before it in the order.
  struct Place {
    size_t rank;
    int32_t id;
  };
  // The first of the first n tokens for which done(cumulative mass) is true; otherwise {n, the last
  // of them with a positive mass}. `done` is called after single tokens or after whole bins, and
  // must be monotonic.
  template <typename Done>
  Place Walk(size_t n, const Done& done);
  // Sorts a bin: its tokens are then at the start of memory_.ids, in order.
  void SortBin(size_t bin);

  const float* const values_;
  const size_t vocab_;
  const double max_, temperature_;
  const Memory memory_;
  std::array<Bin, kSampleBins> bins_;
  size_t sorted_bin_ = kSampleBins;
};

}  // namespace stagecoach::kernels
