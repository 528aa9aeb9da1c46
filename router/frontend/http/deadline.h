// A point in time that is moved often.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace stagecoach::router::http {

// Moving it back, as every write does, costs no timer operation. Belongs to the executor, which
// runs one handler at a time.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  // Once, before all else: `on_time` is called at the deadline as long as `owner`, which this is a
  // member of, lives.
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
      if (alive == nullptr || error) return;  // an error: set anew
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
