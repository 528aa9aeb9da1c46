#include "router/access/rate_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "router/access/retry_after.h"

namespace stagecoach::router {

RateLimit::RateLimit(double per_minute)
    : per_minute_(per_minute), most_(std::max(1.0, per_minute)), saved_(most_) {}

absl::Status RateLimit::Take(double n, Clock::time_point now, double n_taken) {
  if (n_taken + n > most_) {
    return absl::InvalidArgumentError(
        fmt::format("n: {} choices are more than this key's limit of {} requests per minute",
                    n_taken + n, per_minute_));
  }
  MutexLock lock(mutex_);
  saved_ = SavedAt(now);
  saved_at_ = now;
  if (saved_ < n) {
    const int wait_s = static_cast<int>(std::ceil((n - saved_) * 60 / per_minute_));
    return WithRetryAfter(absl::ResourceExhaustedError(fmt::format(
                              "this key's {} requests per minute are used up; try again in {} s",
                              per_minute_, wait_s)),
                          wait_s);
  }
  saved_ -= n;
  return absl::OkStatus();
}

RateLimit::State RateLimit::Look(Clock::time_point now) const {
  MutexLock lock(mutex_);
  const double saved = SavedAt(now);
  return {.limit = static_cast<int64_t>(most_),
          .left = static_cast<int64_t>(saved),
          .until_full = std::chrono::seconds(
              static_cast<int64_t>(std::ceil((most_ - saved) * 60 / per_minute_)))};
}

double RateLimit::SavedAt(Clock::time_point now) const {
  if (saved_at_ == Clock::time_point{}) return saved_;
  const std::chrono::duration<double> passed = now - saved_at_;
  return std::min(most_, saved_ + passed.count() * per_minute_ / 60);
}

}  // namespace stagecoach::router
