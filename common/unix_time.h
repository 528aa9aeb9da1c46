// The time of day, for what leaves the process; what stays in it is timed by steady_clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace stagecoach {

inline uint64_t UnixNanoseconds(
    std::chrono::system_clock::time_point time = std::chrono::system_clock::now()) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// The time of day of moments of this process, by one reading of both clocks: moments keep their
// order and distances, which they would not by a reading each. For a request's length of time: the
// clocks drift apart.
class UnixClock {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  UnixClock() {
    // The thread may lose its core between the clocks: the closest of a few readings counts.
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
    return unix_ns_ + static_cast<uint64_t>(since.count());  // before it: modulo 2^64
  }

 private:
  Moment moment_;
  uint64_t unix_ns_ = 0;
};

}  // namespace stagecoach
