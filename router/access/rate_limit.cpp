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
  const double per_second = per_minute_ / 60;
  const std::chrono::duration<double> passed = now - saved_at_;
  if (saved_at_ != Clock::time_point{}) {
    saved_ = std::min(most_, saved_ + passed.count() * per_second);
  }
  saved_at_ = now;
  if (saved_ < n) {
    const int wait_s = static_cast<int>(std::ceil((n - saved_) / per_second));
    return WithRetryAfter(absl::ResourceExhaustedError(fmt::format(
                              "this key's {} requests per minute are used up; try again in {} s",
                              per_minute_, wait_s)),
                          wait_s);
  }
  saved_ -= n;
  return absl::OkStatus();
}

}  // namespace stagecoach::router
