// How often a key may be used.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "common/mutex.h"

namespace stagecoach::router {

// A token bucket of choices: a minute's worth may be saved up. Thread-safe.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(double per_minute);

  // RESOURCE_EXHAUSTED, with the seconds to wait, when so many are not left; INVALID_ARGUMENT when
  // they never are, together with the n_taken that the same request has taken before.
  absl::Status Take(double n, Clock::time_point now, double n_taken = 0);

 private:
  const double per_minute_;
  const double most_;
  Mutex mutex_;
  double saved_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point saved_at_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace stagecoach::router
