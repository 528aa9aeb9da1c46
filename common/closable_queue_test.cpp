#include "common/closable_queue.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace stagecoach {
namespace {

using Rest = ClosableQueue<int>::Rest;

TEST_CASE("a queue keeps the order when its ring wraps around many times") {
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

TEST_CASE("an unbounded queue keeps the order while it grows") {
  ClosableQueue<int> queue;
  int pushed = 0, popped = 0;
  // Each time the ring grows, its first item is at a different place.
  for (int n = 1; n < 100; ++n) {
    for (int i = 0; i < n; ++i) REQUIRE(queue.Push(pushed++).ok());
    for (int i = 0; i < n / 2; ++i) REQUIRE(queue.Pop().value() == popped++);
  }
  CHECK(queue.size() == static_cast<size_t>(pushed - popped));
  std::vector<int> rest = {-1};
  queue.TakeAll(&rest);
  REQUIRE(rest.size() == static_cast<size_t>(pushed - popped));
  for (const int item : rest) REQUIRE(item == popped++);
  queue.TakeAll(&rest);
  CHECK(rest.empty());
}

TEST_CASE("a full queue accepts the next item once there is room") {
  ClosableQueue<int> queue(1);
  REQUIRE(queue.Push(0).ok());
  std::thread producer([&] {
    for (int i = 1; i < 50; ++i) CHECK(queue.Push(i).ok());
  });
  std::vector<int> items;
  for (int next = 0; next < 50;) {
    if (next % 2 == 0) {
      REQUIRE(queue.Pop().value() == next++);
      continue;
    }
    REQUIRE(queue.Wait().ok());
    queue.TakeAll(&items);
    for (const int item : items) REQUIRE(item == next++);
  }
  producer.join();
}

TEST_CASE("items that were pushed together are taken together") {
  ClosableQueue<int> queue;
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) CHECK(queue.PushAll(3, [&](size_t k) { return int(k); }).ok());
  });
  std::vector<int> items;
  for (size_t n = 0; n < 300; n += items.size()) {
    REQUIRE(queue.Wait().ok());
    queue.TakeAll(&items);
    REQUIRE(items.size() % 3 == 0);
  }
  producer.join();
}

TEST_CASE("each item goes to exactly one of several consumers") {
  ClosableQueue<int> queue;
  std::atomic<int> sum = 0;
  std::vector<std::thread> consumers;
  for (int i = 0; i < 4; ++i) {
    consumers.emplace_back([&] {
      for (auto item = queue.Pop(); item.ok(); item = queue.Pop()) sum += *item;
    });
  }
  for (int i = 1; i <= 100; ++i) REQUIRE(queue.Push(i).ok());
  queue.Close(absl::CancelledError("all is there"), Rest::kKeep);
  for (std::thread& consumer : consumers) consumer.join();
  CHECK(sum == 5050);
}

TEST_CASE("waiting for an item ends at the deadline") {
  ClosableQueue<int> queue;
  const auto past = std::chrono::steady_clock::now() - std::chrono::hours(1);
  CHECK(absl::IsDeadlineExceeded(queue.PopUntil(past).status()));
  CHECK(absl::IsDeadlineExceeded(queue.WaitUntil(past)));
  REQUIRE(queue.Push(1).ok());
  CHECK(queue.WaitUntil(past).ok());
  CHECK(queue.PopUntil(past).value() == 1);
  REQUIRE(queue.Push(2).ok());
  CHECK(queue.PopUntil(std::chrono::steady_clock::time_point::max()).value() == 2);
  queue.Close(absl::AbortedError("closed"));
  CHECK(absl::IsAborted(queue.PopUntil(past).status()));
  CHECK(absl::IsAborted(queue.WaitUntil(past)));
}

TEST_CASE("closing wakes a blocked producer and blocked consumers with the reason") {
  const absl::Status reason = absl::UnavailableError("stage 1 is gone");
  ClosableQueue<std::string> full(1);
  ClosableQueue<std::string> empty(1), awaited;
  REQUIRE(full.Push("a").ok());
  absl::Status pushed, popped, waited;
  std::thread producer([&] { pushed = full.Push("b"); });
  std::thread consumer([&] { popped = empty.Pop().status(); });
  std::thread waiter([&] { waited = awaited.Wait(); });
  full.Close(reason);
  empty.Close(reason);
  awaited.Close(reason);
  producer.join();
  consumer.join();
  waiter.join();
  CHECK(pushed == reason);
  CHECK(popped == reason);
  CHECK(waited == reason);
}

TEST_CASE("a closed queue drops its items, keeps the first reason and can be reopened") {
  ClosableQueue<int> bounded(2), unbounded;
  for (ClosableQueue<int>* queue : {&bounded, &unbounded}) {
    REQUIRE(queue->Push(1).ok());
    queue->Close(absl::AbortedError("first"));
    queue->Close(absl::AbortedError("second"));
    CHECK(queue->Pop().status() == absl::AbortedError("first"));
    CHECK(queue->Push(2) == absl::AbortedError("first"));
    queue->Reopen();
    REQUIRE(queue->Push(3).ok());
    CHECK(queue->Pop().value() == 3);
  }
}

TEST_CASE("items that a closed queue keeps can be taken, and a second close drops them") {
  ClosableQueue<int> queue;
  for (const int item : {1, 2, 3}) REQUIRE(queue.Push(item).ok());
  queue.Close(absl::AbortedError("first"), Rest::kKeep);
  CHECK(absl::IsAborted(queue.Push(4)));
  CHECK(queue.Pop().value() == 1);
  CHECK(queue.Wait().ok());
  queue.Close(absl::CancelledError("second"));
  CHECK(queue.size() == 0);
  CHECK(absl::IsAborted(queue.Wait()));
  CHECK(absl::IsAborted(queue.Pop().status()));
}

TEST_CASE("a dropped item may use the queue in its destructor") {
  using Item = std::shared_ptr<int>;
  ClosableQueue<Item> queue;
  bool dropped = false;
  REQUIRE(queue
              .Push(Item(new int(1),
                         [&](int* item) {
                           delete item;
                           dropped = queue.size() == 0;
                         }))
              .ok());
  queue.Close(absl::AbortedError("closed"));
  CHECK(dropped);
}

}  // namespace
}  // namespace stagecoach
