// Wall-clock time, for timestamps that leave the process. Durations inside the process use
// steady_clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace stagecoach {

inline uint64_t UnixNanoseconds(
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now()) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// Converts this process's steady_clock time points to wall-clock time. Both clocks are read once,
// so converted times keep their order and distances; with one reading per time point they would
// not. Use one object for at most the length of a request, because the clocks drift apart.
class UnixClock {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  UnixClock() {
    // The thread may lose its core between the readings, so take several and keep the closest.
    auto closest = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 4; ++i) {
      const Moment before = std::chrono::steady_clock::now();
      const auto time = std::chrono::system_clock::now();
      const auto took = std::chrono::steady_clock::now() - before;
      if (took >= closest) continue;
      closest = took;
      moment_ = before + took / 2;
      unix_ns_ = UnixNanoseconds(time);
    }
  }

  uint64_t At(Moment moment) const {
    const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(moment - moment_);
    return unix_ns_ + static_cast<uint64_t>(since.count());  // a time before moment_ wraps modulo
                                                             // 2^64, which gives the right sum
  }

 private:
  Moment moment_;
  uint64_t unix_ns_ = 0;
};

}  // namespace stagecoach
