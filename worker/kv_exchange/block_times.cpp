#include "worker/kv_exchange/block_times.h"

#include <algorithm>

namespace stagecoach::worker {
namespace {

constexpr double kKeep = 0.95;  // of a call's weight, at each later call
// Below this variance relative to the square of the mean, the numbers of blocks are about the same.
constexpr double kLeastSpread = 0.1;

}  // namespace

void BlockTimes::Observe(double n, double seconds) {
  const MutexLock lock(mutex_);
  w_ = kKeep * w_ + 1;
  n_ = kKeep * n_ + n;
  nn_ = kKeep * nn_ + n * n;
  t_ = kKeep * t_ + seconds;
  nt_ = kKeep * nt_ + n * seconds;
}

double BlockTimes::SecondsFor(uint32_t n_blocks, bool fixed) const {
  const MutexLock lock(mutex_);
  if (w_ == 0) return 0;
  const double mean_n = n_ / w_, mean_t = t_ / w_;
  const double variance = nn_ / w_ - mean_n * mean_n;
  if (variance < kLeastSpread * mean_n * mean_n) {
    return fixed ? mean_t : mean_t * n_blocks / mean_n;
  }
  const double per_block = std::max(0.0, (nt_ / w_ - mean_n * mean_t) / variance);
  const double per_call = std::max(0.0, mean_t - per_block * mean_n);
  return per_call + per_block * n_blocks;
}

}  // namespace stagecoach::worker
