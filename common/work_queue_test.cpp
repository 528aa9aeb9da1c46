#include "common/work_queue.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>

namespace stagecoach {
namespace {

TEST_CASE("a queue runs all its tasks before it ends") {
  std::atomic<int> n = 0;
  {
    WorkQueue queue(2);
    for (int i = 0; i < 100; ++i) queue.Post([&n] { ++n; });
  }
  CHECK(n == 100);
}

TEST_CASE("an abandoned queue ends while a task runs, and starts no further task") {
  std::promise<void> begun, may_end, ended;
  const auto gate = std::make_shared<std::future<void>>(may_end.get_future());
  std::atomic<bool> ran_later = false;
  {
    WorkQueue queue(1);
    queue.Post([&begun, &ended, gate] {
      begun.set_value();
      gate->wait();
      ended.set_value_at_thread_exit();
    });
    begun.get_future().wait();
    queue.Post([&ran_later] { ran_later = true; });
    queue.Abandon();
    queue.Post([&ran_later] { ran_later = true; });
  }
  may_end.set_value();
  ended.get_future().wait();
  CHECK_FALSE(ran_later);
}

}  // namespace
}  // namespace stagecoach
