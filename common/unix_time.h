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

// The time of day of a moment of this process.
inline uint64_t UnixNanoseconds(std::chrono::steady_clock::time_point time) {
  return UnixNanoseconds() -
         static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now() - time)
                                   .count());
}

}  // namespace stagecoach
