#include "router/frontend/scheduler_watch.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <string>

namespace stagecoach::router {
namespace {

using std::chrono::milliseconds;

constexpr SchedulerWatchLimits kQuick{.interval = milliseconds(1),
                                      .tick = milliseconds(5),
                                      .notice = milliseconds(20),
                                      .end = std::chrono::hours(1)};

TEST_CASE("a scheduler that answers is asked repeatedly and never counts as stalled") {
  std::atomic<int> n_asked = 0;
  std::promise<void> enough;
  std::atomic<bool> changed = false;
  {
    SchedulerWatch watch(
        [&]() -> std::function<bool()> {
          if (++n_asked == 20) enough.set_value();
          return [] { return true; };
        },
        kQuick, {.on_change = [&](bool) { changed = true; }, .on_lost = nullptr});
    enough.get_future().wait();
    CHECK(watch.Stalled().empty());
    watch.End();
    const int n_before = n_asked;
    watch.End();
    CHECK(n_asked == n_before);
  }
  CHECK_FALSE(changed);
}

TEST_CASE("the watch reports when a scheduler stops answering and when it continues") {
  std::atomic<bool> answers = false;
  std::promise<void> stalled, went_on;
  SchedulerWatch watch(
      [&]() -> std::function<bool()> { return [&] { return answers.load(); }; }, kQuick,
      {.on_change =
           [&](bool is_stalled) { is_stalled ? stalled.set_value() : went_on.set_value(); },
       .on_lost = nullptr});
  stalled.get_future().wait();
  CHECK(watch.Stalled().find("the router's scheduler has not answered for") == 0);
  answers = true;
  went_on.get_future().wait();
  CHECK(watch.Stalled().empty());
}

TEST_CASE("a scheduler that is silent for too long is reported as lost, once") {
  SchedulerWatchLimits limits = kQuick;
  limits.end = milliseconds(60);
  std::promise<std::string> lost;
  SchedulerWatch watch(
      [&]() -> std::function<bool()> { return [] { return false; }; }, limits,
      {.on_change = nullptr, .on_lost = [&](const std::string& why) { lost.set_value(why); }});
  CHECK(lost.get_future().get().find("has not answered") != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::router
