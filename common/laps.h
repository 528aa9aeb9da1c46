// Times of the phases of a procedure, for one line of a log.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

namespace stagecoach {

class Laps {
 public:
  // Ends the phase `what`, which began at the last call or with the object.
  void End(std::string_view what) {
    const Clock::time_point now = Clock::now();
    text_ += fmt::format("{}{} {:.0f}", text_.empty() ? "" : ", ", what, Ms(last_, now));
    last_ = now;
  }
  // "345 ms (driver 100, context 245)"
  std::string ToString() const { return fmt::format("{:.0f} ms ({})", Ms(begun_, last_), text_); }

 private:
  using Clock = std::chrono::steady_clock;
  static double Ms(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  }

  const Clock::time_point begun_ = Clock::now();
  Clock::time_point last_ = begun_;
  std::string text_;
};

}  // namespace stagecoach
