// Keeps calls away from something that fails, and tries it again now and then.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "common/mutex.h"

namespace stagecoach::worker {

// After `n_failures` in a row it is open: it refuses calls for a time. Then it lets one through; if
// this one fails, too, it refuses for twice the time. A success closes it.
//
// Thread-safe. Calls that run at the same time may all fail for one cause, so what became of a call
// counts only if the breaker has neither opened nor closed since it was let through.
class CircuitBreaker {
 public:
  using Clock = std::chrono::steady_clock;
  using Round = uint64_t;  // of calls that are let through without a change between

  struct Options {
    uint32_t n_failures = 3;
    std::chrono::milliseconds first_wait{1'000};
    std::chrono::milliseconds longest_wait{30'000};
  };

  explicit CircuitBreaker(const Options& options) : options_(options), wait_(options.first_wait) {}

  // Lets a call through, or refuses it: absent. The caller tells how a call ended that was let
  // through.
  std::optional<Round> Ask(Clock::time_point now) {
    const MutexLock lock(mutex_);
    if (state_ == State::kClosed) return round_;
    if (state_ == State::kTrying || now < open_until_) return std::nullopt;
    state_ = State::kTrying;
    return ++round_;
  }
  // Returns whether this closes the breaker.
  bool Succeeded(Round round) {
    const MutexLock lock(mutex_);
    if (round != round_) return false;
    n_failures_ = 0;
    wait_ = options_.first_wait;
    if (state_ == State::kClosed) return false;
    state_ = State::kClosed;
    ++round_;
    return true;
  }
  // Returns whether this opens the breaker, which was closed.
  bool Failed(Round round, Clock::time_point now) {
    const MutexLock lock(mutex_);
    if (round != round_) return false;
    const bool was_closed = state_ == State::kClosed;
    if (was_closed && ++n_failures_ < options_.n_failures) return false;
    state_ = State::kOpen;
    ++round_;
    open_until_ = now + wait_;
    wait_ = std::min(2 * wait_, options_.longest_wait);
    return was_closed;
  }

 private:
  enum class State : uint8_t { kClosed, kOpen, kTrying };

  const Options options_;
  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kClosed;
  Round round_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t n_failures_ ABSL_GUARDED_BY(mutex_) = 0;         // in a row, while it is closed
  std::chrono::milliseconds wait_ ABSL_GUARDED_BY(mutex_);  // next time
  Clock::time_point open_until_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::worker
