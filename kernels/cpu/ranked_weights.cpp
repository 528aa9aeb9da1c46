#include "kernels/cpu/ranked_weights.h"

#include <algorithm>
#include <cmath>

namespace stagecoach::kernels {
namespace {

// Bins cover weights down to exp(-40) of the largest; smaller ones share the last bin.
constexpr double kBinnedRange = 40;

}  // namespace

RankedWeights::RankedWeights(const float* values, size_t vocab, float max, double temperature,
                             const SampleVector& vector, const Memory& memory)
    : values_(values), vocab_(vocab), max_(max), temperature_(temperature), memory_(memory) {
  const double spread =
      static_cast<double>(max) - static_cast<double>(vector.least_finite(values, vocab, max));
  const double range = std::min(spread, kBinnedRange * temperature);
  // If the range is too small for float arithmetic, all values but -inf go into the first bin.
  const double bins_per_unit = range > 1e-30 ? (kSampleBins - 1) / range : 1.0;
  vector.weigh(values, vocab, max, temperature, static_cast<float>(bins_per_unit), memory.weights,
               memory.bins);
  // With a mask most tokens are in the last bin. It is accumulated in registers, because each
  // addition in memory would wait for the previous one.
  Bin last;
  for (size_t i = 0; i < vocab; ++i) {
    if (memory.bins[i] == kSampleBins - 1) {
      ++last.count;
      last.mass += memory.weights[i];
      continue;
    }
    Bin& bin = bins_[memory.bins[i]];
    ++bin.count;
    bin.mass += memory.weights[i];
  }
  bins_[kSampleBins - 1] = last;
}

size_t RankedWeights::CountAtLeast(double exponent) const {
  size_t count = 0;
  for (size_t i = 0; i < vocab_; ++i) {
    count += (static_cast<double>(values_[i]) - max_) / temperature_ >= exponent ? 1 : 0;
  }
  return count;
}

template <typename Done>
RankedWeights::Place RankedWeights::Walk(size_t n, const Done& done) {
  size_t rank = 0;
  double mass = 0;
  size_t last_bin = 0, last_taken = 0;
  for (size_t b = 0; b < bins_.size() && rank < n; ++b) {
    const Bin& bin = bins_[b];
    if (bin.mass == 0) {
      rank += std::min(bin.count, n - rank);
      continue;
    }
    last_bin = b;
    last_taken = std::min(bin.count, n - rank);
    if (last_taken == bin.count && !done(mass + bin.mass)) {
      mass += bin.mass;
      rank += bin.count;
      continue;
    }
    SortBin(b);
    for (size_t i = 0; i < last_taken; ++i) {
      mass += memory_.weights[memory_.ids[i]];
      if (done(mass)) return {rank + i, memory_.ids[i]};
    }
    rank += last_taken;
  }
  SortBin(last_bin);
  while (last_taken > 1 && memory_.weights[memory_.ids[last_taken - 1]] == 0) --last_taken;
  return {n, memory_.ids[last_taken - 1]};
}

double RankedWeights::MassOf(size_t n) {
  double total = 0;
  size_t rank = 0;
  for (size_t b = 0; b < bins_.size() && rank < n; rank += bins_[b++].count) {
    if (bins_[b].count <= n - rank) {
      total += bins_[b].mass;
      continue;
    }
    SortBin(b);
    for (size_t i = 0; i < n - rank; ++i) total += memory_.weights[memory_.ids[i]];
  }
  return total;
}

size_t RankedWeights::PrefixReaching(double mass, size_t n) {
  return std::min(n, Walk(n, [mass](double reached) { return reached >= mass; }).rank + 1);
}

int32_t RankedWeights::TokenAt(double target, size_t n) {
  return Walk(n, [target](double reached) { return reached > target; }).id;
}

void RankedWeights::SortBin(size_t bin) {
  if (sorted_bin_ == bin) return;
  sorted_bin_ = bin;
  int32_t* end = memory_.ids;
  for (size_t i = 0; i < vocab_; ++i) {
    if (memory_.bins[i] == bin) *end++ = static_cast<int32_t>(i);
  }
  std::sort(memory_.ids, end, [this](int32_t a, int32_t b) {
    return values_[a] != values_[b] ? values_[a] > values_[b] : a < b;
  });
}

}  // namespace stagecoach::kernels
