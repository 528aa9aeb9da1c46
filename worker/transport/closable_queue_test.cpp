#include "worker/transport/closable_queue.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>

namespace stagecoach::worker {
namespace {

TEST_CASE("a queue keeps the order over many turns of its ring") {
  ClosableQueue<int> queue(3);
  int next = 0;
  for (int i = 0; i < 20; ++i) {
    REQUIRE(queue.Push(2 * i).ok());
    REQUIRE(queue.Push(2 * i + 1).ok());
    REQUIRE(queue.Pop().value() == next++);
    REQUIRE(queue.Pop().value() == next++);
  }
  CHECK(queue.size() == 0);
}

TEST_CASE("closing wakes a blocked producer and a blocked consumer with the reason") {
  const absl::Status reason = absl::UnavailableError("stage 1 is gone");
  ClosableQueue<std::string> full(1);
  ClosableQueue<std::string> empty(1);
  REQUIRE(full.Push("a").ok());
  absl::Status pushed, popped;
  std::thread producer([&] { pushed = full.Push("b"); });
  std::thread consumer([&] { popped = empty.Pop().status(); });
  full.Close(reason);
  empty.Close(reason);
  producer.join();
  consumer.join();
  CHECK(pushed == reason);
  CHECK(popped == reason);
}

TEST_CASE("a closed queue drops its content, keeps its first reason and can be reopened") {
  ClosableQueue<int> queue(2);
  REQUIRE(queue.Push(1).ok());
  queue.Close(absl::AbortedError("first"));
  queue.Close(absl::AbortedError("second"));
  CHECK(queue.Pop().status() == absl::AbortedError("first"));
  CHECK(queue.Push(2) == absl::AbortedError("first"));
  queue.Reopen();
  REQUIRE(queue.Push(3).ok());
  CHECK(queue.Pop().value() == 3);
}

}  // namespace
}  // namespace stagecoach::worker
