#include "router/scheduler/waiting_queue.h"

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

TEST_CASE("The queue is ordered by priority, then arrival") {
  Tenant tenant({}, 0);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (auto [id, priority] : {std::pair{1, 0}, {2, 1}, {3, -1}, {4, 0}}) {
    auto request = MakeRequest(static_cast<SequenceId>(id), 10 * id, 1);
    request->priority = priority;
    sequences.push_back(std::make_unique<Sequence>(std::move(request), &tenant,
                                                   static_cast<uint64_t>(id),
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

TEST_CASE("The tenant with the least service for its weight is first") {
  Tenant one({"one", 1}, 0), three({"three", 3}, 1), late({"late", 1}, 2);
  std::vector<std::unique_ptr<Sequence>> sequences;
  const auto make = [&](Tenant* tenant) {
    const SequenceId id = sequences.size() + 1;
    sequences.push_back(std::make_unique<Sequence>(MakeRequest(id, 10, 1), tenant, id,
                                                   std::chrono::steady_clock::time_point{}));
    return sequences.back().get();
  };
  WaitingQueue queue;
  queue.Add(make(&one));
  queue.Add(make(&one));
  queue.Add(make(&three));
  REQUIRE(queue.first()->id() == 1);
  queue.Charge(&one, 100);
  REQUIRE(queue.first()->id() == 3);
  queue.Charge(&three, 299);
  REQUIRE(queue.first()->id() == 3);
  queue.Charge(&three, 2);
  REQUIRE(queue.first()->id() == 1);

  // A late tenant is lifted to the least served waiting tenant.
  queue.Add(make(&late));
  REQUIRE(late.service == one.service);
  queue.Charge(&late, 1);
  REQUIRE(queue.first()->id() == 1);

  // When nobody waits, no tenant keeps a credit.
  for (const auto& sequence : sequences) queue.Remove(sequence.get());
  queue.Charge(&three, 3000);
  queue.Add(sequences[0].get());
  REQUIRE(one.service == three.service);
}

}  // namespace
}  // namespace stagecoach::router
