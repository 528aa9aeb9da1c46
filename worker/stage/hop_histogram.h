// A histogram of message latency between stages.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::worker {

// Not thread-safe.
class HopHistogram {
 public:
  // Upper bounds of the buckets, in seconds.
  static constexpr std::array kBounds = {50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3,
                                         5e-3,  10e-3,  50e-3,  200e-3, 1.0};

  void Observe(double seconds) {
    const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
    ++counts_[static_cast<size_t>(bucket - kBounds.begin())];
    sum_ += seconds;
  }

  void FillIn(v1::Histogram* out) const {
    out->mutable_bounds()->Add(kBounds.begin(), kBounds.end());
    out->mutable_counts()->Add(counts_.begin(), counts_.end());
    out->set_sum(sum_);
  }

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

}  // namespace stagecoach::worker
