#include "router/frontend/thread_watch.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

namespace stagecoach::router {
namespace {

using std::chrono::milliseconds;

constexpr ThreadWatchLimits kQuick{.interval = milliseconds(1),
                                   .tick = milliseconds(5),
                                   .notice = milliseconds(20),
                                   .end = std::chrono::hours(1)};

std::vector<StoppedThread> NoneStopped() { return {}; }

// A watch of one thread, and what it reports.
class Watched {
 public:
  explicit Watched(ThreadWatch::Ask ask, ThreadWatchLimits limits = kQuick,
                   std::function<std::vector<StoppedThread>()> stopped = NoneStopped)
      : watch_(limits) {
    watch_.Begin({{"scheduler", std::move(ask)}},
                 {.on_change =
                      [this](bool is_stalled) {
                        is_stalled ? stalled_.set_value() : continued_.set_value();
                      },
                  .on_lost = [this](const std::string& why) { lost_.set_value(why); }},
                 std::move(stopped));
  }

  void AwaitStall() { stalled_.get_future().wait(); }
  void AwaitContinued() { continued_.get_future().wait(); }
  std::string AwaitLost() { return lost_.get_future().get(); }
  std::string Stalled() const { return watch_.Stalled(); }
  void End() { watch_.End(); }

 private:
  std::promise<void> stalled_, continued_;
  std::promise<std::string> lost_;
  ThreadWatch watch_;  // last: its thread uses all above
};

ThreadWatch::Ask Answers(std::function<bool()> answered) {
  return [answered]() -> std::function<bool()> { return answered; };
}

TEST_CASE("thread watch: a thread that answers is asked again and never stalls") {
  std::atomic<int> n_asked = 0;
  std::promise<void> enough;
  Watched watched([&]() -> std::function<bool()> {
    if (++n_asked == 20) enough.set_value();
    return [] { return true; };
  });
  enough.get_future().wait();
  CHECK(watched.Stalled().empty());
  watched.End();
  const int n_before = n_asked;
  watched.End();
  CHECK(n_asked == n_before);
}

TEST_CASE("thread watch: a thread that does not answer stalls until it answers") {
  std::atomic<bool> answers = false;
  Watched watched(Answers([&] { return answers.load(); }));
  watched.AwaitStall();
  CHECK(watched.Stalled().starts_with("the router's scheduler has not answered for"));
  answers = true;
  watched.AwaitContinued();
  CHECK(watched.Stalled().empty());
}

TEST_CASE("thread watch: a thread that does not answer for too long is lost, once") {
  ThreadWatchLimits limits = kQuick;
  limits.end = milliseconds(60);
  Watched watched(Answers([] { return false; }), limits);
  CHECK(watched.AwaitLost().find("has not answered") != std::string::npos);
}

TEST_CASE("thread watch: a stopped thread stalls unless it runs now and then") {
  std::atomic<uint64_t> ticks = 0;
  std::atomic<bool> runs = true;
  std::atomic<int> n_looks = 0;
  std::promise<void> enough;
  Watched watched(Answers([] { return true; }), kQuick, [&]() -> std::vector<StoppedThread> {
    if (++n_looks == 20) enough.set_value();
    if (runs) ++ticks;
    return {{.id = 7, .name = "http", .cpu_ticks = ticks}};
  });
  enough.get_future().wait();
  CHECK(watched.Stalled().empty());
  runs = false;
  watched.AwaitStall();
  CHECK(watched.Stalled().starts_with("the router's thread \"http\" has been stopped for"));
}

TEST_CASE("thread watch: a stopped log thread is no stall") {
  std::atomic<int> n_looks = 0;
  std::promise<void> enough;
  Watched watched(Answers([] { return true; }), kQuick, [&]() -> std::vector<StoppedThread> {
    if (++n_looks == 20) enough.set_value();
    return {{.id = 7, .name = "log", .cpu_ticks = 1}};
  });
  enough.get_future().wait();
  CHECK(watched.Stalled().empty());
}

TEST_CASE("thread watch: a queue answers while it works through a backlog, and not when it hangs") {
  std::promise<void> first, second;
  std::promise<void> second_began;
  WorkQueue queue(1);  // last: its tasks use all above
  queue.Post([&] { first.get_future().wait(); });
  queue.Post([&] {
    second_began.set_value();
    second.get_future().wait();
  });
  const auto answered = ThreadWatch::AskQueue("text", &queue).ask();
  CHECK_FALSE(answered());
  first.set_value();
  second_began.get_future().wait();
  CHECK(answered());  // the first task is done; our question still waits behind the second
  second.set_value();
}

}  // namespace
}  // namespace stagecoach::router
