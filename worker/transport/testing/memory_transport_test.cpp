#include "worker/transport/testing/memory_transport.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>

#include "worker/transport/testing/fault_transport.h"

namespace stagecoach::worker {
namespace {

void JoinAll(std::vector<std::unique_ptr<Transport>>& transports, uint64_t epoch) {
  const int32_t n = static_cast<int32_t>(transports.size());
  std::vector<absl::Status> joined(n);
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < n; ++i) {
    threads.emplace_back(
        [&, i] { joined[i] = transports[i]->Join({.epoch = epoch, .stage = i, .n_stages = n}); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& status : joined) REQUIRE(status.ok());
}

TEST_CASE("frames arrive in order on their own channel") {
  auto stages = MakeMemoryTransports(2);
  JoinAll(stages, 1);
  REQUIRE(stages[0]->Send(Channel::kMetadata, 1, "m1").ok());
  REQUIRE(stages[0]->Send(Channel::kHidden, 1, "h1").ok());
  REQUIRE(stages[0]->Send(Channel::kMetadata, 2, "m2").ok());
  REQUIRE(stages[1]->Send(Channel::kTokens, 1, "t1").ok());
  CHECK(stages[1]->Receive(Channel::kMetadata)->payload == "m1");
  CHECK(stages[1]->Receive(Channel::kMetadata)->step == 2);
  CHECK(stages[1]->Receive(Channel::kHidden)->payload == "h1");
  CHECK(stages[0]->Receive(Channel::kTokens)->payload == "t1");
  CHECK(stages[0]->Counters(Channel::kMetadata).sent_frames == 2);
  CHECK(stages[1]->Counters(Channel::kMetadata).received_bytes == 4);
}

TEST_CASE("a close gives the own reason here and UNAVAILABLE there; a new epoch starts empty") {
  auto stages = MakeMemoryTransports(2);
  JoinAll(stages, 1);
  REQUIRE(stages[0]->Send(Channel::kHidden, 1, "stale").ok());
  absl::Status here, there;
  std::thread a([&] { here = stages[0]->Receive(Channel::kTokens).status(); });
  std::thread b([&] { there = stages[1]->Receive(Channel::kMetadata).status(); });
  stages[0]->Close(absl::CancelledError("enough"));
  a.join();
  b.join();
  CHECK(here == absl::CancelledError("enough"));
  CHECK(absl::IsUnavailable(there));
  CHECK(std::string(there.message()).find("stage 0") != std::string::npos);

  JoinAll(stages, 2);
  REQUIRE(stages[0]->Send(Channel::kHidden, 1, "fresh").ok());
  CHECK(stages[1]->Receive(Channel::kHidden)->payload == "fresh");
}

TEST_CASE("a join without the others ends at its deadline and names the missing stages") {
  auto stages = MakeMemoryTransports(2, {.join_timeout = std::chrono::milliseconds(1)});
  const absl::Status status = stages[0]->Join({.epoch = 3, .stage = 0, .n_stages = 2});
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(std::string(status.message()).find("stage 1") != std::string::npos);
}

TEST_CASE("a full queue blocks the sender until the receiver takes a frame") {
  auto stages = MakeMemoryTransports(2, {.queue_frames = 1});
  JoinAll(stages, 1);
  REQUIRE(stages[0]->Send(Channel::kHidden, 1, "1").ok());
  std::thread sender([&] { REQUIRE(stages[0]->Send(Channel::kHidden, 2, "2").ok()); });
  CHECK(stages[1]->Receive(Channel::kHidden)->step == 1);
  CHECK(stages[1]->Receive(Channel::kHidden)->step == 2);
  sender.join();
}

TEST_CASE("an injected fault ends the epoch for both sides") {
  auto stages = MakeMemoryTransports(2);
  auto faulty_owner = std::make_unique<FaultTransport>(std::move(stages[0]));
  FaultTransport& faulty = *faulty_owner;
  stages[0] = std::move(faulty_owner);
  JoinAll(stages, 1);
  faulty.FailSend(Channel::kHidden, 1, absl::UnavailableError("cable cut"));
  CHECK(stages[0]->Send(Channel::kHidden, 1, "x").ok());
  CHECK(stages[0]->Send(Channel::kHidden, 2, "x") == absl::UnavailableError("cable cut"));
  CHECK(stages[0]->Send(Channel::kMetadata, 1, "x") == absl::UnavailableError("cable cut"));
  CHECK(absl::IsUnavailable(stages[1]->Receive(Channel::kHidden).status()));
}

TEST_CASE("a held channel delivers nothing until it is released") {
  auto stages = MakeMemoryTransports(2);
  auto faulty_owner = std::make_unique<FaultTransport>(std::move(stages[1]));
  FaultTransport& faulty = *faulty_owner;
  stages[1] = std::move(faulty_owner);
  JoinAll(stages, 1);
  faulty.Hold(Channel::kHidden);
  REQUIRE(stages[0]->Send(Channel::kHidden, 1, "x").ok());
  bool released = false;
  std::thread receiver([&] {
    REQUIRE(stages[1]->Receive(Channel::kHidden).ok());
    CHECK(released);
  });
  faulty.AwaitHeld(Channel::kHidden);
  released = true;
  faulty.Release(Channel::kHidden);
  receiver.join();
}

}  // namespace
}  // namespace stagecoach::worker
