// The rate limit of a key.
#pragma once

#include <chrono>
#include <cstdint>

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

  struct State {
    int64_t limit = 0;                   // most choices that can be saved up
    int64_t left = 0;                    // whole choices that can be taken now
    std::chrono::seconds until_full{0};  // until `limit` are left; rounded up
  };
  State Look(Clock::time_point now) const;

 private:
  // The choices saved up at `now`.
  double SavedAt(Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const double per_minute_;
  const double most_;
  mutable Mutex mutex_;
  double saved_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point saved_at_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace stagecoach::router
