// The rate limit of a key.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "common/mutex.h"

namespace stagecoach::router {

// A token bucket of choices; it saves up one minute's worth. Thread-safe.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(double per_minute);

  // Takes n choices. RESOURCE_EXHAUSTED, with the seconds to wait, if fewer are left.
  // INVALID_ARGUMENT if n plus n_taken, which the same request took before, never fits.
  absl::Status Take(double n, Clock::time_point now, double n_taken = 0);

 private:
  const double per_minute_;
  const double most_;
  Mutex mutex_;
  double saved_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point saved_at_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace stagecoach::router
