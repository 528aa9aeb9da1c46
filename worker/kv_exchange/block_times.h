// How long an operation takes on a number of KV blocks, from what its calls took so far: reading
// them from a tier, or computing them. The model is a straight line, a time per call and a time per
// block. It is fitted by least squares; older calls count less.
#pragma once

#include <cstdint>

#include "common/mutex.h"

namespace stagecoach::worker {

// Thread-safe.
class BlockTimes {
 public:
  void Observe(double n_blocks, double seconds);
  // Estimates the time of a call for so many blocks. 0: nothing is known. While all calls had about
  // the same number of blocks, `fixed` tells what their time depends on: nothing, or that number.
  double SecondsFor(uint32_t n_blocks, bool fixed) const;

 private:
  mutable Mutex mutex_;
  // Weighted sums over calls: of 1, n, n^2, t and n * t.
  double w_ ABSL_GUARDED_BY(mutex_) = 0, n_ ABSL_GUARDED_BY(mutex_) = 0,
            nn_ ABSL_GUARDED_BY(mutex_) = 0, t_ ABSL_GUARDED_BY(mutex_) = 0,
            nt_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagecoach::worker
