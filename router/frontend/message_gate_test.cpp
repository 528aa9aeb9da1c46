#include "router/frontend/message_gate.h"

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace stagecoach::router {
namespace {

constexpr std::chrono::hours kNever(1);

// Messages that record in which order they receive.
struct Arrivals {
  MessageGate& gate;
  std::vector<std::string> received;
  std::vector<std::string> refused;

  MessageGate::Ticket Enter(const std::string& tenant, const std::string& name) {
    MessageGate::Ticket ticket = 0;
    gate.Enter({.tenant = tenant,
                .receive = [this, name] { received.push_back(name); },
                .refuse = [this, name] { refused.push_back(name); }},
               &ticket);
    return ticket;
  }
};

TEST_CASE("messages beyond the limit wait, and tenants take turns") {
  MessageGate gate(/*n_places=*/2, /*max_waiting=*/8, kNever);
  Arrivals all{gate, {}, {}};
  const auto first = all.Enter("a", "a1");
  const auto second = all.Enter("a", "a2");
  const auto third = all.Enter("a", "a3");
  all.Enter("b", "b1");
  all.Enter("b", "b2");
  CHECK(all.received == std::vector<std::string>{"a1", "a2"});
  CHECK(gate.Leave(first));
  CHECK(gate.Leave(second));
  CHECK(all.received == std::vector<std::string>{"a1", "a2", "b1", "a3"});
  CHECK(gate.Leave(third));
  CHECK(all.received.back() == "b2");
  CHECK_FALSE(gate.Leave(third));
}

TEST_CASE("a call that ends while its message waits never receives the message") {
  MessageGate gate(/*n_places=*/1, /*max_waiting=*/8, kNever);
  Arrivals all{gate, {}, {}};
  const auto first = all.Enter("a", "a1");
  const auto second = all.Enter("a", "a2");
  CHECK(gate.Leave(second));
  CHECK(gate.Leave(first));
  CHECK(all.received == std::vector<std::string>{"a1"});
}

TEST_CASE("messages beyond the waiting limit are refused") {
  MessageGate gate(/*n_places=*/1, /*max_waiting=*/1, kNever);
  Arrivals all{gate, {}, {}};
  all.Enter("a", "a1");
  all.Enter("a", "a2");
  const auto third = all.Enter("a", "a3");
  CHECK(all.refused == std::vector<std::string>{"a3"});
  CHECK_FALSE(gate.Leave(third));
}

TEST_CASE("a slow message loses its place only if another one waits") {
  MessageGate gate(/*n_places=*/1, /*max_waiting=*/8, std::chrono::milliseconds(1));
  std::promise<void> refused, received;
  MessageGate::Ticket slow = 0, next = 0;
  gate.Enter({.tenant = "a", .receive = [] {}, .refuse = [&] { refused.set_value(); }}, &slow);
  gate.Enter({.tenant = "a", .receive = [&] { received.set_value(); }, .refuse = [] {}}, &next);
  refused.get_future().wait();
  received.get_future().wait();
  CHECK_FALSE(gate.Leave(slow));
  CHECK(gate.Leave(next));
}

}  // namespace
}  // namespace stagecoach::router
