// The server against a real scheduler over the fake pipeline: what threads, endings and slow
// clients do to each other. What answers say is tested in answer_json_test and by real clients.
#include "router/frontend/http/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "router/frontend/testing/front_house.h"

namespace stagecoach::router::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;

struct HttpHouse {
  explicit HttpHouse(const FakeStageClient::Options& pipeline = {}, int n_threads = 1,
                     const SchedulerConfig& config = FrontHouse::Config())
      : house(pipeline, config) {
    HttpOptions options;
    options.address = "127.0.0.1:0";
    options.n_threads = n_threads;
    auto started = HttpServer::Start(options, house.frontend.get(), {}, nullptr);
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
    socket_.connect({asio::ip::make_address(address.substr(0, colon)),
                     static_cast<uint16_t>(std::stoi(address.substr(colon + 1)))});
  }

  void Ask(const std::string& body, const std::string& path = "/v1/completions") {
    asio::write(socket_, asio::buffer("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                                      std::to_string(body.size()) + "\r\n\r\n" + body));
  }

  // What the server says up to and with `mark`; all it says if it never does.
  std::string Until(const std::string& mark) {
    boost::system::error_code error;
    const size_t n_bytes = asio::read_until(socket_, asio::dynamic_buffer(held_), mark, error);
    std::string text = held_.substr(0, error ? held_.size() : n_bytes);
    held_.erase(0, text.size());
    return text;
  }

  void HalfClose() { socket_.shutdown(tcp::socket::shutdown_send); }
  void Close() { socket_.close(); }

 private:
  asio::io_context loop_;
  tcp::socket socket_;
  std::string held_;
};

constexpr char kLastEvent[] = "data: [DONE]\n\n\r\n0\r\n\r\n";

std::string Body(const std::string& prompt, uint32_t seed, uint32_t max_tokens,
                 const std::string& more = "") {
  return R"({"prompt": ")" + prompt + R"(", "seed": )" + std::to_string(seed) +
         R"(, "ignore_eos": true, "max_tokens": )" + std::to_string(max_tokens) + more + "}";
}

// The answer that gRPC would give, as its part of the JSON.
std::string ExpectedText(const std::string& prompt, uint32_t seed, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_sampling()->set_ignore_eos(true);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  return *TestModel().tokenizer->Decode(Expected(request)[0], true);
}

std::string TextOf(const std::string& response) {
  constexpr char kStart[] = "\r\n\r\n";
  return std::string(boost::json::parse(response.substr(response.find(kStart) + 4))
                         .at("choices")
                         .at(0)
                         .at("text")
                         .as_string());
}

TEST_CASE("hundreds of connections are open at once, each with its own answer") {
  for (const int n_threads : {1, 3}) {
    SchedulerConfig config = FrontHouse::Config();
    config.max_waiting = 1000;
    HttpHouse http({.hold_results = true}, n_threads, config);
    std::vector<std::unique_ptr<Client>> clients;
    for (uint32_t i = 0; i < 200; ++i) {
      clients.push_back(std::make_unique<Client>(http));
      clients.back()->Ask(Body("stream " + std::to_string(i), i, 20));
    }
    http.house.pipeline.ReleaseAll();
    for (uint32_t i = 0; i < clients.size(); ++i) {
      const std::string response = clients[i]->Until("cached_tokens\":0}}}");
      REQUIRE(TextOf(response) == ExpectedText("stream " + std::to_string(i), i, 20));
    }
    http.house.WaitUntilIdle();
  }
}

TEST_CASE("clients that come and go under load leave nothing behind") {
  for (const int n_threads : {1, 3}) {
    HttpHouse http({.max_delay_us = 200}, n_threads);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&http, t] {
        for (uint32_t i = 0; i < 24; ++i) {
          Client client(http);
          const std::string stream = i % 2 == 0 ? R"(, "stream": true)" : "";
          client.Ask(Body("client", t * 100 + i, 40, stream + R"(, "n": 2)"));
          if (i % 3 == 0) client.HalfClose();
          if (i % 4 < 2) client.Close();  // at once
          if (i % 4 == 2) client.Until("\r\n\r\n");
          if (i % 4 == 3) client.Until(i % 2 == 0 ? kLastEvent : "cached_tokens\":0}}}");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    http.house.WaitUntilIdle();
  }
}

TEST_CASE("a client that leaves ends its sequences, before the first token as well") {
  for (const char* stream : {"", R"(, "stream": true)"}) {
    for (const bool half_close_first : {false, true}) {
      HttpHouse http({.hold_results = true});
      Client client(http);
      client.Ask(Body("gone", 1, 100, stream));
      http.house.WaitUntilRunning(1);
      if (half_close_first) {
        client.HalfClose();
        CHECK(client.Until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
      }
      client.Close();
      http.house.WaitUntilIdle();
    }
  }
}

TEST_CASE("a client that only sends no more gets its answer") {
  HttpHouse http({.hold_results = true});
  Client client(http);
  client.Ask(Body("patient", 1, 10));
  http.house.WaitUntilRunning(1);
  client.HalfClose();
  CHECK(client.Until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  http.house.pipeline.ReleaseAll();
  std::string rest = client.Until("nothing more");
  rest.erase(0, rest.find("HTTP/1.1 200"));  // it may have been asked again
  CHECK(TextOf(rest) == ExpectedText("patient", 1, 10));
}

TEST_CASE("a server that shuts down finishes what it can, and cancels the rest") {
  HttpHouse http({.hold_results = true});
  Client idle(http);
  Client running(http);
  running.Ask(Body("running", 1, 100, R"(, "stream": true)"));
  Client waiting(http);
  waiting.Ask("{}", "/nowhere");
  CHECK(waiting.Until("\r\n\r\n").starts_with("HTTP/1.1 404"));
  http.house.WaitUntilRunning(1);
  http.server->Shutdown(milliseconds(0));
  CHECK(idle.Until("\n").empty());
  CHECK(running.Until("\n").empty());
  http.house.WaitUntilIdle();
  http.server->Shutdown(milliseconds(0));
}

TEST_CASE("a server that is given time ends with the last answer") {
  HttpHouse http({.hold_results = true});
  Client running(http);
  running.Ask(Body("running", 1, 30, R"(, "stream": true)"));
  http.house.WaitUntilRunning(1);
  http.server->SetDraining();
  http.house.frontend->StopAccepting();
  Client refused(http);
  refused.Ask(Body("late", 1, 5));
  CHECK(refused.Until("\r\n\r\n").starts_with("HTTP/1.1 503"));
  std::thread shutdown([&http] { http.server->Shutdown(std::chrono::minutes(5)); });
  http.house.pipeline.ReleaseAll();
  CHECK(running.Until(kLastEvent).ends_with(kLastEvent));
  running.Close();
  refused.Close();
  shutdown.join();
}

TEST_CASE("a lost pipeline is an event where the stream has begun, else a status") {
  HttpHouse http({.hold_results = true});
  Client begun(http);
  begun.Ask(Body("begun", 1, 100, R"(, "stream": true)"));
  http.house.WaitUntilRunning(1);
  http.house.pipeline.Release(8);
  CHECK(begun.Until("\n\n").find("HTTP/1.1 200 OK") == 0);
  Client fresh(http);
  fresh.Ask(Body("fresh", 1, 100, R"(, "stream": true)"));
  http.house.WaitUntilRunning(2);
  http.house.pipeline.Lose(absl::UnavailableError("stage 1 (10.0.0.2:1) is lost"));
  const std::string rest = begun.Until(kLastEvent);
  CHECK(rest.ends_with(kLastEvent));
  CHECK(rest.find(R"(data: {"error":{"message":"stage 1 (10.0.0.2:1) is lost")") !=
        std::string::npos);
  CHECK(fresh.Until("\r\n\r\n").starts_with("HTTP/1.1 503"));
}

TEST_CASE("addresses and files that cannot be used are named") {
  FrontHouse house;
  HttpOptions options;
  options.address = house.server->address();
  const auto taken = HttpServer::Start(options, house.frontend.get(), {}, nullptr);
  CHECK(absl::IsUnavailable(taken.status()));
  CHECK(std::string(taken.status().message()).find(options.address) != std::string::npos);
  options.address = "127.0.0.1:0";
  options.tls_cert_path = "/no/such/file";
  options.tls_key_path = "/no/such/file";
  CHECK(absl::IsInvalidArgument(
      HttpServer::Start(options, house.frontend.get(), {}, nullptr).status()));
}

}  // namespace
}  // namespace stagecoach::router::http
