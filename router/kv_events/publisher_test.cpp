#include "router/kv_events/publisher.h"

#include <nlohmann/json.hpp>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

using Frames = std::vector<std::string>;

constexpr char kAnyPort[] = "tcp://127.0.0.1:*";
constexpr int kTimeoutMs = 60'000;

std::string Number(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

Frames Receive(zmq::socket_t& socket) {
  std::vector<zmq::message_t> messages;
  REQUIRE(zmq::recv_multipart(socket, std::back_inserter(messages)));
  Frames frames;
  for (const auto& message : messages) frames.push_back(message.to_string());
  return frames;
}

struct Client {
  zmq::context_t context;

  zmq::socket_t Open(zmq::socket_type type) {
    zmq::socket_t socket(context, type);
    socket.set(zmq::sockopt::rcvtimeo, kTimeoutMs);
    socket.set(zmq::sockopt::linger, 0);
    return socket;
  }
};

KvEvents Removed(uint64_t hash) { return {KvBlocksRemoved{.hashes = {hash}}}; }

// 0: the event names no block.
uint64_t HashOf(const std::string& payload) {
  const auto event = nlohmann::json::from_msgpack(payload)[1][0];
  return event.contains("block_hashes") ? event["block_hashes"][0].get<uint64_t>() : 0;
}

// Asks for past events; returns the answers without the last one.
std::vector<Frames> Replay(Client& client, const KvEventPublisher& publisher, uint64_t first) {
  zmq::socket_t socket = client.Open(zmq::socket_type::dealer);
  socket.connect(publisher.replay_endpoint());
  std::array<zmq::message_t, 2> request{zmq::message_t(), zmq::message_t(Number(first))};
  REQUIRE(zmq::send_multipart(socket, request));
  std::vector<Frames> answers;
  while (true) {
    Frames answer = Receive(socket);
    REQUIRE(answer.size() == 3);
    CHECK(answer[0].empty());
    if (answer[1] == Number(UINT64_MAX)) {
      CHECK(answer[2].empty());
      return answers;
    }
    answers.push_back({answer[1], answer[2]});
  }
}

TEST_CASE("KV events: it listens at wildcards and files, and connects elsewhere") {
  for (const char* endpoint : {"tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557",
                               "tcp://127.0.0.1:*", "ipc:///tmp/x"}) {
    CHECK(ListensAt(endpoint));
  }
  for (const char* endpoint : {"tcp://indexer:5557", "tcp://127.0.0.1:5557", "tcp://10.0.0.0:1"}) {
    CHECK_FALSE(ListensAt(endpoint));
  }
}

TEST_CASE("KV events: a listener gets topic, number and payload, in order") {
  Client client;
  zmq::socket_t listener = client.Open(zmq::socket_type::sub);
  listener.set(zmq::sockopt::subscribe, "kv@");
  // The listener listens, so that it has joined as soon as the first message comes.
  listener.bind(kAnyPort);
  auto publisher = KvEventPublisher::Start({.endpoint = listener.get(zmq::sockopt::last_endpoint),
                                            .replay = kAnyPort,
                                            .topic = "kv@a@m"});
  REQUIRE(publisher.ok());
  KvEventSink* const sink = (*publisher)->SinkOf(0);
  KvEventSink* const other = (*publisher)->SinkOf(1);
  // What was published before it has joined is lost to it, but not to a replay.
  uint64_t n = 1;  // of messages; each names its own number, after the first, which clears all
  zmq::pollitem_t item{listener.handle(), 0, ZMQ_POLLIN, 0};
  do {
    REQUIRE(sink->Publish(Removed(n++)));
  } while (zmq::poll(&item, 1, std::chrono::milliseconds(1)) == 0);
  REQUIRE(other->Publish(Removed(n++)));
  Frames frames = Receive(listener);
  REQUIRE(frames.size() == 3);
  CHECK(frames[0] == "kv@a@m");
  if (frames[1] == Number(0)) frames = Receive(listener);
  const uint64_t first = HashOf(frames[2]);
  CHECK(frames[1] == Number(first));
  for (uint64_t i = first + 1; i < n; ++i) {
    frames = Receive(listener);
    CHECK(frames[1] == Number(i));
    CHECK(HashOf(frames[2]) == i);
  }
  CHECK(nlohmann::json::from_msgpack(frames[2])[2] == 1);

  const auto missed = Replay(client, **publisher, 0);
  REQUIRE(missed.size() == n);
  const auto cleared = nlohmann::json::from_msgpack(missed[0][1]);
  CHECK(cleared[1] == nlohmann::json{{{"type", "AllBlocksCleared"}}});
  CHECK(cleared[2].is_null());
  for (uint64_t i = 0; i < n; ++i) {
    CHECK(missed[i][0] == Number(i));
    if (i > 0) CHECK(HashOf(missed[i][1]) == i);
  }
  CHECK(missed.back()[1] == frames[2]);
  CHECK(Replay(client, **publisher, n - 1).size() == 1);
  CHECK(Replay(client, **publisher, n).empty());
  CHECK((*publisher)->Read().n_replays == 3);
  CHECK((*publisher)->Read().n_published == n);
}

TEST_CASE("KV events: strange requests for a replay get no answer, and harm nobody") {
  Client client;
  auto publisher = KvEventPublisher::Start({.endpoint = kAnyPort, .replay = kAnyPort, .topic = ""});
  REQUIRE(publisher.ok());
  zmq::socket_t stranger = client.Open(zmq::socket_type::dealer);
  stranger.connect((*publisher)->replay_endpoint());
  for (const std::string& text : {std::string(), std::string("hello"), std::string(100'000, 'x')}) {
    REQUIRE(stranger.send(zmq::buffer(text)));
    std::array<zmq::message_t, 2> request{zmq::message_t(), zmq::message_t(text)};
    REQUIRE(zmq::send_multipart(stranger, request));
  }
  CHECK(Replay(client, **publisher, 0).empty());
}

TEST_CASE("KV events: without room, events are dropped and counted") {
  auto publisher = KvEventPublisher::Start({.endpoint = kAnyPort, .replay = "", .topic = ""},
                                           {.max_queued_blocks = 0});
  REQUIRE(publisher.ok());
  KvEventSink* const sink = (*publisher)->SinkOf(0);
  CHECK_FALSE(sink->HasRoom());
  CHECK_FALSE(sink->Publish(Removed(1)));
  CHECK((*publisher)->Read().n_dropped == 1);
  CHECK((*publisher)->replay_endpoint().empty());
}

TEST_CASE("KV events: an address that is taken is named") {
  const auto publisher = KvEventPublisher::Start({.endpoint = kAnyPort, .replay = "", .topic = ""});
  REQUIRE(publisher.ok());
  const auto second = KvEventPublisher::Start(
      {.endpoint = kAnyPort, .replay = (*publisher)->endpoint(), .topic = ""});
  CHECK(absl::IsUnavailable(second.status()));
  CHECK(second.status().message().find("--kv-events-replay " + (*publisher)->endpoint()) !=
        std::string::npos);
  CHECK(absl::IsInvalidArgument(
      KvEventPublisher::Start({.endpoint = "tcp://nothing", .replay = "", .topic = ""}).status()));
}

TEST_CASE("KV events: what is queued is sent before the end") {
  Client client;
  zmq::socket_t listener = client.Open(zmq::socket_type::sub);
  listener.set(zmq::sockopt::subscribe, "");
  auto publisher = KvEventPublisher::Start({.endpoint = kAnyPort, .replay = "", .topic = ""});
  REQUIRE(publisher.ok());
  listener.connect((*publisher)->endpoint());
  zmq::pollitem_t item{listener.handle(), 0, ZMQ_POLLIN, 0};
  KvEventSink* const sink = (*publisher)->SinkOf(0);
  do {
    REQUIRE(sink->Publish(Removed(0)));
  } while (zmq::poll(&item, 1, std::chrono::milliseconds(1)) == 0);
  for (int i = 0; i < 500; ++i) REQUIRE(sink->Publish(Removed(0)));
  REQUIRE(sink->Publish(Removed(1)));
  publisher->reset();
  while (HashOf(Receive(listener)[2]) != 1) {
  }
}

}  // namespace
}  // namespace stagecoach::router
