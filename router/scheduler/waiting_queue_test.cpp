#include "router/scheduler/waiting_queue.h"

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

TEST_CASE("The queue is in order of priority, then arrival") {
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (auto [id, priority] : {std::pair{1, 0}, {2, 1}, {3, -1}, {4, 0}}) {
    auto request = MakeRequest(static_cast<SequenceId>(id), 10 * id, 1);
    request->priority = priority;
    sequences.push_back(std::make_unique<Sequence>(std::move(request), static_cast<uint64_t>(id),
                                                   std::chrono::steady_clock::time_point{}));
    sequences.back()->n_to_prefill = sequences.back()->n_tokens();
  }
  sequences[1]->was_admitted = true;
  WaitingQueue queue;
  for (size_t i : {3, 1, 2, 0}) queue.Add(sequences[i].get());
  REQUIRE(queue.size() == 4);
  REQUIRE(queue.n_new() == 3);
  REQUIRE(queue.n_new_tokens() == 80);
  REQUIRE(queue.n_to_prefill() == 100);
  REQUIRE(queue.n_high() == 1);
  REQUIRE(queue.n_low() == 1);
  std::vector<SequenceId> order;
  while (!queue.empty()) {
    order.push_back(queue.first()->id());
    queue.Remove(queue.first());
  }
  REQUIRE(order == std::vector<SequenceId>{3, 1, 4, 2});
  REQUIRE(queue.n_new() == 0);
  REQUIRE(queue.n_new_tokens() == 0);
  REQUIRE(queue.n_to_prefill() == 0);
  REQUIRE(queue.n_high() + queue.n_low() == 0);
}

}  // namespace
}  // namespace stagecoach::router
