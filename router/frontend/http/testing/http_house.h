// A whole router without workers, with its HTTP server, and client connections.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>
#include <utility>

#include "router/frontend/http/http_server.h"
#include "router/frontend/testing/front_house.h"

namespace stagecoach::router::http {

struct HttpHouse {
  explicit HttpHouse(const FakeStageClient::Options& pipeline = {}, int n_threads = 1,
                     const SchedulerConfig& config = FrontHouse::Config(),
                     const HttpLimits& limits = HttpLimits(), const StreamLimits& streams = {},
                     Journal* journal = nullptr)
      : house(pipeline, config, {.streams = streams, .journal = journal}) {
    HttpOptions options;
    options.address = "127.0.0.1:0";
    options.n_threads = n_threads;
    options.limits = limits;
    auto started = HttpServer::Start(options, house.access, house.frontend.get(), {}, nullptr);
    REQUIRE(started.ok());
    server = *std::move(started);
  }

  FrontHouse house;
  std::unique_ptr<HttpServer> server;
};

// One connection, used by one thread.
class Client {
 public:
  explicit Client(const HttpHouse& house) : socket_(loop_) {
    const std::string& address = house.server->address();
    const size_t colon = address.rfind(':');
    socket_.connect({boost::asio::ip::make_address(address.substr(0, colon)),
                     static_cast<uint16_t>(std::stoi(address.substr(colon + 1)))});
  }

  void Ask(const std::string& body, const std::string& path = "/v1/completions") {
    boost::asio::write(
        socket_,
        boost::asio::buffer("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body));
  }

  void Get(const std::string& path, const std::string& fields = "") {
    boost::asio::write(
        socket_,
        boost::asio::buffer("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n"));
  }

  // The server's output up to and including `mark`; all of it if `mark` never comes.
  std::string Until(const std::string& mark) {
    boost::system::error_code error;
    const size_t n_bytes =
        boost::asio::read_until(socket_, boost::asio::dynamic_buffer(held_), mark, error);
    std::string text = held_.substr(0, error ? held_.size() : n_bytes);
    held_.erase(0, text.size());
    return text;
  }

  uint16_t port() const { return socket_.local_endpoint().port(); }
  void HalfClose() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }
  void Close() { socket_.close(); }

 private:
  boost::asio::io_context loop_;
  boost::asio::ip::tcp::socket socket_;
  std::string held_;
};

inline constexpr char kLastEvent[] = "data: [DONE]\n\n\r\n0\r\n\r\n";

inline std::string Body(const std::string& prompt, uint32_t seed, uint32_t max_tokens,
                        const std::string& more = "") {
  return R"({"prompt": ")" + prompt + R"(", "seed": )" + std::to_string(seed) +
         R"(, "ignore_eos": true, "max_tokens": )" + std::to_string(max_tokens) + more + "}";
}

// The text that gRPC returns for the same request, to compare with the text in the JSON.
inline std::string ExpectedText(const std::string& prompt, uint32_t seed, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_sampling()->set_ignore_eos(true);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  return *TestModel().tokenizer->Decode(Expected(request)[0], true);
}

}  // namespace stagecoach::router::http
