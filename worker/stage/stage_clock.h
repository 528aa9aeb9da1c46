// Measures how a stage's compute thread spends its time. The thread is always in exactly one state,
// so the states add up to the elapsed time. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "common/mutex.h"

namespace stagecoach::worker {

enum class StageState : size_t { kIdle, kWaitInput, kCompute, kWaitMask, kWaitSend };

class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  struct Times {
    std::array<double, 5> ms{};  // by StageState
    double of(StageState state) const { return ms[static_cast<size_t>(state)]; }
    double elapsed_ms() const { return ms[0] + ms[1] + ms[2] + ms[3] + ms[4]; }
  };

  void Enter(StageState state) {
    MutexLock lock(mutex_);
    Settle(Clock::now());
    state_ = state;
  }
  // Never blocks, even while another thread is inside Enter.
  StageState state() const { return state_; }

  // Times since the start or the last reset.
  Times Read(bool reset) {
    MutexLock lock(mutex_);
    Settle(Clock::now());
    const Times times = times_;
    if (reset) times_ = {};
    return times;
  }

 private:
  void Settle(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    times_.ms[static_cast<size_t>(state_.load())] +=
        std::chrono::duration<double, std::milli>(now - since_).count();
    since_ = now;
  }

  Mutex mutex_;
  std::atomic<StageState> state_ = StageState::kIdle;  // written under mutex_
  Clock::time_point since_ ABSL_GUARDED_BY(mutex_) = Clock::now();
  Times times_ ABSL_GUARDED_BY(mutex_);
};

// Idle time of a device that reports a step's times only when the step ends. A running step does
// not count yet, so the reported total never decreases. Not thread-safe.
class IdleTime {
 public:
  using Clock = StageClock::Clock;

  // Since the last call the device was idle except for busy_ms.
  void Settle(Clock::time_point now, double busy_ms = 0) {
    settled_ms_ += std::chrono::duration<double, std::milli>(now - since_).count() - busy_ms;
    since_ = now;
    // The host learns late about a step's end, so the next step's time may reach back before it.
    ms_ = std::max(ms_, settled_ms_);
  }
  double ms() const { return ms_; }

 private:
  Clock::time_point since_ = Clock::now();
  double settled_ms_ = 0;
  double ms_ = 0;
};

}  // namespace stagecoach::worker
