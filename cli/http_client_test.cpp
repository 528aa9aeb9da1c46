#include "cli/http_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "cli/grpc_client.h"
#include "cli/http_messages.h"
#include "cli/probe.h"

namespace stagecoach::cli {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Serves one client after the other: sends the same answer and closes the connection.
class HttpPeer {
 public:
  explicit HttpPeer(std::string answer)
      : acceptor_(loop_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        thread_([this, answer = std::move(answer)] {
          while (true) {
            boost::system::error_code error;
            tcp::socket socket(loop_);
            acceptor_.accept(socket, error);
            if (error) return;
            std::string request;
            asio::read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", error);
            if (request.empty()) return;  // the peer is stopping
            request_ = request;
            asio::write(socket, asio::buffer(answer), error);
          }
        }) {}
  ~HttpPeer() {
    tcp::socket socket(loop_);
    boost::system::error_code ignored;
    socket.connect(acceptor_.local_endpoint(), ignored);
    socket.close(ignored);
    thread_.join();
  }

  std::string address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }
  // The header of the last request. Read it after that request's answer has arrived.
  const std::string& request() const { return request_; }

 private:
  asio::io_context loop_;
  tcp::acceptor acceptor_;
  std::string request_;
  std::thread thread_;
};

Connection To(const HttpPeer& peer) {
  Connection connection;
  connection.server = "http://" + peer.address() + "/v1/";
  connection.api_key = "secret";
  return connection;
}

TEST_CASE("an HTTP answer arrives in pieces") {
  const HttpPeer peer(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
      ": comment\n\n"
      "data: "
      "{\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n"
      "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},"
      "\"finish_reason\":\"length\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n"
      "data: [DONE]\n\n");
  const auto client = HttpClient::Make(To(peer));
  REQUIRE(client.ok());
  std::string text, reasoning;
  uint32_t n_tokens = 0;
  v1::ChatRequest request;
  const absl::Status status = (*client)->Stream(
      request,
      [&](const v1::GenerateResponse& piece) {
        text += piece.text();
        reasoning += piece.reasoning();
        n_tokens += piece.usage().completion_tokens();
      },
      nullptr);
  INFO(status);
  CHECK(status.ok());
  CHECK(text == "a");
  CHECK(reasoning == "hm");
  CHECK(n_tokens == 2);
  CHECK(peer.request().starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
  CHECK(peer.request().find("Authorization: Bearer secret\r\n") != std::string::npos);
}

TEST_CASE("the client reports an HTTP server's own error message") {
  const HttpPeer peer(
      "HTTP/1.1 401 Unauthorized\r\nContent-Length: 33\r\n\r\n"
      "{\"error\":{\"message\":\"wrong key\"}}");
  const auto client = HttpClient::Make(To(peer));
  REQUIRE(client.ok());
  const absl::Status status = (*client)->GetModel().status();
  CHECK(absl::IsUnauthenticated(status));
  CHECK(std::string(status.message()).starts_with("wrong key; give the key with --api-key"));
}

TEST_CASE("a gRPC call to an HTTP port and a missing server give different errors") {
  const HttpPeer peer("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  CHECK(Probe(peer.address()) == Spoken::kHttp);
  Connection connection;
  connection.server = peer.address();
  const auto client = GrpcClient::Make(connection);
  REQUIRE(client.ok());
  const std::string message((*client)->GetModel().status().message());
  CHECK(message.find("speaks HTTP, not gRPC") != std::string::npos);
}

TEST_CASE("the error names an invalid address") {
  Connection connection;
  connection.server = "http://:x";
  CHECK(absl::IsInvalidArgument(HttpClient::Make(connection).status()));
  connection.server = "http://127.0.0.1:8000";
  CHECK(absl::IsInvalidArgument(GrpcClient::Make(connection).status()));
}

TEST_CASE("sampling parameters are sent by name, log-probabilities are not sent") {
  v1::GenerateRequest request;
  request.set_text("a");
  request.mutable_sampling()->set_temperature(0.7f);
  request.mutable_sampling()->set_seed(7);
  request.mutable_sampling()->add_stop("x");
  const auto body = ToHttp(request);
  REQUIRE(body.ok());
  CHECK(body->at("temperature") == 0.7);
  CHECK(body->at("seed").to_number<int>() == 7);
  CHECK(body->at("stop") == boost::json::array{"x"});
  CHECK(body->at("prompt") == "a");
  request.mutable_sampling()->set_logprobs(1);
  CHECK(absl::IsInvalidArgument(ToHttp(request).status()));
}

TEST_CASE("events are complete wherever the byte stream is split") {
  int n_events = 0;
  EventReader reader([&](const boost::json::object& event, std::optional<uint64_t> id) {
    ++n_events;
    CHECK(event.at("a") == 1);
    CHECK(id == 12);
  });
  for (const char byte : std::string("id: 12\r\ndata: {\"a\":1}\r\n\r\ndata: [DONE]\n\n")) {
    CHECK(!reader.is_done());
    reader.Push(std::string_view(&byte, 1));
    if (reader.is_done()) break;
  }
  CHECK(reader.is_done());
  CHECK(n_events == 1);
}

}  // namespace
}  // namespace stagecoach::cli
