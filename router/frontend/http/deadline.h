// A timeout that is moved often.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace stagecoach::router::http {

// Moving the deadline later, as every write does, needs no timer operation. Use it only on the
// executor, which runs one handler at a time.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  // Call once, before all other methods. `on_time` runs at the deadline, as long as `owner`, which
  // contains this object, lives.
  void Bind(std::weak_ptr<void> owner, std::function<void()> on_time) {
    owner_ = std::move(owner);
    on_time_ = std::move(on_time);
  }

  void Set(Clock::duration from_now) {
    at_ = Clock::now() + from_now;
    if (at_ < timer_set_to_) SetTimer();
  }
  void Clear() { at_ = Clock::time_point::max(); }

 private:
  void SetTimer() {
    timer_set_to_ = at_;
    timer_.expires_at(at_);
    timer_.async_wait([this, owner = owner_](const boost::system::error_code& error) {
      const auto alive = owner.lock();
      if (alive == nullptr || error) return;  // an error: the timer was set again
      timer_set_to_ = Clock::time_point::max();
      if (at_ == Clock::time_point::max()) return;
      if (Clock::now() < at_) return SetTimer();
      Clear();
      on_time_();
    });
  }

  boost::asio::steady_timer timer_;
  Clock::time_point at_ = Clock::time_point::max();
  Clock::time_point timer_set_to_ = Clock::time_point::max();
  std::weak_ptr<void> owner_;
  std::function<void()> on_time_;
};

}  // namespace stagecoach::router::http
