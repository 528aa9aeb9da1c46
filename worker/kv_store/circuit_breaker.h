// Keeps calls away from something that fails, and tries it again now and then.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace stagecoach::worker {

// After `n_failures` in a row it is open: it refuses calls for a time. Then it lets one through; if
// this one fails, too, it refuses for twice the time. A success closes it. One thread at a time:
// each call that was let through ends, and its result is told, before the next one asks.
class CircuitBreaker {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    uint32_t n_failures = 3;
    std::chrono::milliseconds first_wait{1'000};
    std::chrono::milliseconds longest_wait{30'000};
  };

  explicit CircuitBreaker(const Options& options) : options_(options), wait_(options.first_wait) {}

  bool is_open() const { return n_failures_ >= options_.n_failures; }
  // Whether a call may be made now.
  bool Allows(Clock::time_point now) const { return !is_open() || now >= open_until_; }
  void Succeeded() {
    n_failures_ = 0;
    wait_ = options_.first_wait;
  }
  void Failed(Clock::time_point now) {
    n_failures_ = std::min(n_failures_ + 1, options_.n_failures);
    if (!is_open()) return;
    open_until_ = now + wait_;
    wait_ = std::min(2 * wait_, options_.longest_wait);
  }

 private:
  const Options options_;
  uint32_t n_failures_ = 0;         // in a row, at most options_.n_failures
  std::chrono::milliseconds wait_;  // next time
  Clock::time_point open_until_;
};

}  // namespace stagecoach::worker
