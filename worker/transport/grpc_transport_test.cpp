#include "worker/transport/grpc_transport.h"

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"

namespace stagecoach::worker {
namespace {

// A transport behind a real server on a loopback port.
class Peer {
 public:
  explicit Peer(const GrpcTransportOptions& options = {})
      : transport_(std::make_unique<GrpcTransport>(options)) {
    grpc::ServerBuilder builder;
    ApplyServerDefaults(builder, kMaxInternalMessageBytes);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(transport_->service());
    server_ = builder.BuildAndStart();
  }
  Peer(Peer&&) = default;
  ~Peer() { Die(); }

  void Die() {
    if (server_ == nullptr) return;
    transport_->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    transport_.reset();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  GrpcTransport* operator->() { return transport_.get(); }

 private:
  int port_ = 0;
  std::unique_ptr<GrpcTransport> transport_;
  std::unique_ptr<grpc::Server> server_;
};

Neighbours Place(std::vector<Peer>& peers, size_t stage, uint64_t epoch) {
  Neighbours place{.epoch = epoch,
                   .stage = static_cast<int32_t>(stage),
                   .n_stages = static_cast<int32_t>(peers.size())};
  if (stage + 1 < peers.size()) {
    place.next_address = peers[stage + 1].address();
  } else if (peers.size() > 1) {
    place.first_address = peers[0].address();
  }
  return place;
}

std::vector<absl::Status> JoinAll(std::vector<Peer>& peers, uint64_t epoch) {
  std::vector<absl::Status> joined(peers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < peers.size(); ++i) {
    threads.emplace_back([&, i] { joined[i] = peers[i]->Join(Place(peers, i, epoch)); });
  }
  for (auto& thread : threads) thread.join();
  return joined;
}

void RequireJoined(std::vector<Peer>& peers, uint64_t epoch) {
  for (const absl::Status& status : JoinAll(peers, epoch)) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

bool Mentions(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_CASE("messages through the host need nothing on the device") {
  const GrpcTransport transport;
  CHECK_FALSE(transport.links_devices());
}

TEST_CASE("frames of all channels arrive in order, and large ones arrive whole") {
  std::vector<Peer> peers(3);
  RequireJoined(peers, 1);
  std::string hidden(512 * 4608 * 4, '\0');
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = static_cast<char>(i * 31 >> 3);
  std::thread sender([&] {
    for (uint64_t step = 1; step <= 4; ++step) {
      REQUIRE(peers[0]->Send(Channel::kMetadata, step, absl::StrCat("step ", step)).ok());
      REQUIRE(peers[0]->Send(Channel::kHidden, step, hidden).ok());
    }
  });
  for (uint64_t step = 1; step <= 4; ++step) {
    const auto metadata = peers[1]->Receive(Channel::kMetadata);
    REQUIRE(metadata.ok());
    CHECK(metadata->step == step);
    CHECK(metadata->payload == absl::StrCat("step ", step));
    const auto received = peers[1]->Receive(Channel::kHidden);
    REQUIRE(received.ok());
    CHECK(received->step == step);
    CHECK(received->payload == hidden);
  }
  sender.join();
  REQUIRE(peers[1]->Send(Channel::kHidden, 1, "").ok());
  CHECK(peers[2]->Receive(Channel::kHidden)->payload.empty());
  REQUIRE(peers[2]->Send(Channel::kTokens, 1, "tokens").ok());
  CHECK(peers[0]->Receive(Channel::kTokens)->payload == "tokens");
  CHECK(peers[0]->Counters(Channel::kHidden).sent_bytes == 4 * hidden.size());
  CHECK(peers[1]->Counters(Channel::kHidden).received_bytes == 4 * hidden.size());
}

TEST_CASE("a pipeline with one stage joins without links") {
  std::vector<Peer> peers(1);
  RequireJoined(peers, 1);
}

TEST_CASE("a stage's death wakes its neighbours with UNAVAILABLE and its name") {
  std::vector<Peer> peers(2);
  RequireJoined(peers, 1);
  absl::Status tokens, metadata_after;
  std::thread receiver([&] { tokens = peers[0]->Receive(Channel::kTokens).status(); });
  peers[1].Die();
  receiver.join();
  CHECK(absl::IsUnavailable(tokens));
  CHECK(Mentions(tokens, "stage 1"));
  CHECK(Mentions(tokens, "127.0.0.1:"));
  CHECK(peers[0]->Send(Channel::kMetadata, 1, "x") == tokens);
}

TEST_CASE("a first stage that only sends also learns of a neighbour's death") {
  std::vector<Peer> peers(3);
  RequireJoined(peers, 1);
  peers[1].Die();
  const absl::Status first = peers[0]->Receive(Channel::kTokens).status();
  CHECK(absl::IsUnavailable(first));
  CHECK(absl::IsUnavailable(peers[2]->Receive(Channel::kHidden).status()));
}

TEST_CASE("Close wakes a sender blocked on full queues and a blocked receiver") {
  std::vector<Peer> peers;
  peers.emplace_back(GrpcTransportOptions{.queue_frames = 1});
  peers.emplace_back(GrpcTransportOptions{.queue_frames = 1});
  RequireJoined(peers, 1);
  absl::Status blocked_send, blocked_receive;
  const std::string frame(1 << 20, 'x');
  std::promise<void> some_sent;
  std::thread sender([&] {
    for (int n = 0; blocked_send.ok(); ++n) {
      if (n == 3) some_sent.set_value();
      blocked_send = peers[0]->Send(Channel::kHidden, 1, frame);
    }
  });
  std::thread receiver([&] { blocked_receive = peers[0]->Receive(Channel::kTokens).status(); });
  some_sent.get_future().wait();  // nobody receives, so only a few more frames can be sent
  peers[0]->Close(absl::CancelledError("enough"));
  sender.join();
  receiver.join();
  CHECK(blocked_send == absl::CancelledError("enough"));
  CHECK(blocked_receive == absl::CancelledError("enough"));
  CHECK(absl::IsUnavailable(peers[1]->Receive(Channel::kMetadata).status()));
}

TEST_CASE("a closed pipeline joins again in a new epoch without old messages") {
  std::vector<Peer> peers(2);
  RequireJoined(peers, 1);
  REQUIRE(peers[0]->Send(Channel::kHidden, 1, "stale").ok());
  peers[0]->Close(absl::CancelledError("enough"));
  RequireJoined(peers, 2);
  REQUIRE(peers[0]->Send(Channel::kHidden, 1, "fresh").ok());
  CHECK(peers[1]->Receive(Channel::kHidden)->payload == "fresh");
}

TEST_CASE("a join without an answer ends at its deadline and names the missing stage") {
  std::vector<Peer> peers;
  peers.emplace_back(GrpcTransportOptions{.join_timeout = std::chrono::milliseconds(100)});
  peers.emplace_back();
  const std::string gone = peers[1].address();
  peers[1].Die();
  const absl::Status status =
      peers[0]->Join({.epoch = 1, .stage = 0, .n_stages = 2, .next_address = gone});
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(Mentions(status, absl::StrCat("stage 1 at ", gone)));
}

TEST_CASE("a stage of another epoch is refused") {
  std::vector<Peer> peers;
  peers.emplace_back(GrpcTransportOptions{.join_timeout = std::chrono::seconds(20)});
  peers.emplace_back(GrpcTransportOptions{.join_timeout = std::chrono::milliseconds(100)});
  absl::Status first, second;
  std::thread other([&] { second = peers[1]->Join(Place(peers, 1, 7)); });
  first = peers[0]->Join(Place(peers, 0, 8));
  other.join();
  CHECK(absl::IsUnavailable(first));
  CHECK(Mentions(first, "epoch 8"));
  CHECK(absl::IsDeadlineExceeded(second));
}

TEST_CASE("calls before a join and after a shutdown fail at once") {
  std::vector<Peer> peers(1);
  CHECK(absl::IsFailedPrecondition(peers[0]->Receive(Channel::kHidden).status()));
  CHECK(absl::IsFailedPrecondition(peers[0]->Send(Channel::kHidden, 1, "")));
  RequireJoined(peers, 1);
  peers[0]->Shutdown();
  CHECK(absl::IsUnavailable(peers[0]->Join({.epoch = 2})));
}

}  // namespace
}  // namespace stagecoach::worker
