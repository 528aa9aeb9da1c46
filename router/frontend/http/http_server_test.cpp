// Tests the server with a real scheduler over the fake pipeline: the interplay of threads, shutdown
// and slow clients. answer_json_test and tests with real clients check the contents of answers.
#include "router/frontend/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "router/frontend/http/testing/http_house.h"

namespace stagecoach::router::http {
namespace {

using std::chrono::milliseconds;

std::string TextOf(const std::string& response) {
  constexpr char kStart[] = "\r\n\r\n";
  return std::string(boost::json::parse(response.substr(response.find(kStart) + 4))
                         .at("choices")
                         .at(0)
                         .at("text")
                         .as_string());
}

TEST_CASE("hundreds of open connections each get their own answer") {
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

TEST_CASE("clients that connect and leave under load leave nothing behind") {
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
          if (i % 4 < 2) client.Close();  // without reading anything
          if (i % 4 == 2) client.Until("\r\n\r\n");
          if (i % 4 == 3) client.Until(i % 2 == 0 ? kLastEvent : "cached_tokens\":0}}}");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    http.house.WaitUntilIdle();
  }
}

TEST_CASE("a client that leaves ends its sequences, even before the first token") {
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

TEST_CASE("a client that closes only its sending side still gets its answer") {
  HttpHouse http({.hold_results = true});
  Client client(http);
  client.Ask(Body("patient", 1, 10));
  http.house.WaitUntilRunning(1);
  client.HalfClose();
  CHECK(client.Until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  http.house.pipeline.ReleaseAll();
  std::string rest = client.Until("nothing more");
  rest.erase(0, rest.find("HTTP/1.1 200"));  // the server may have probed again
  CHECK(TextOf(rest) == ExpectedText("patient", 1, 10));
}

TEST_CASE("a shutdown without a grace period cancels running requests") {
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

TEST_CASE("a new connection gets an answer to its first request during a drain, too") {
  HttpHouse http;
  Client used(http);
  used.Ask("{}", "/nowhere");
  CHECK(used.Until("\r\n\r\n").starts_with("HTTP/1.1 404"));
  Client fresh(http);
  http.server->SetDraining();
  CHECK(used.Until("nothing more").find("HTTP/1.1") == std::string::npos);
  fresh.Ask("{}", "/nowhere");
  CHECK(fresh.Until("\r\n\r\n").find("Connection: close") != std::string::npos);
  Client silent(http);  // it is closed after a while
  CHECK(silent.Until("\n").empty());
}

TEST_CASE("a shutdown with enough time ends with the last answer") {
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

TEST_CASE("a lost pipeline is an event in a started stream, otherwise an HTTP status") {
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

TEST_CASE("a waiting stream gets keep-alive comments, a refused one gets an HTTP status") {
  SchedulerConfig config = FrontHouse::Config();
  config.max_sequences = 1;
  config.max_waiting = 1;
  HttpHouse http({.hold_results = true}, 1, config,
                 HttpLimits({.keep_alive_interval = milliseconds(1)}));
  Client running(http);
  running.Ask(Body("running", 1, 20, R"(, "stream": true)"));
  http.house.WaitUntilRunning(1);
  Client waiting(http);
  waiting.Ask(Body("waiting", 1, 20, R"(, "stream": true)"));
  for (Client* client : {&running, &waiting}) {
    CHECK(client->Until("\r\n\r\n").starts_with("HTTP/1.1 200"));
    for (int i = 0; i < 3; ++i) CHECK(client->Until("\n\n").ends_with(": keep-alive\n\n"));
  }
  Client refused(http);
  refused.Ask(Body("one too many", 1, 20, R"(, "stream": true)"));
  CHECK(refused.Until("\r\n\r\n").starts_with("HTTP/1.1 429"));
  Client whole(http);
  whole.Ask("{}", "/v1/completions");
  CHECK(whole.Until("\r\n\r\n").starts_with("HTTP/1.1 400"));

  http.house.pipeline.Lose(absl::UnavailableError("stage 1 is lost"));
  const std::string rest = waiting.Until(kLastEvent);
  CHECK(rest.ends_with(kLastEvent));
  CHECK(rest.find(R"(data: {"error":{"message":"stage 1 is lost")") != std::string::npos);
}

TEST_CASE("more choices than the queue can hold are refused at once") {
  HttpHouse http({.hold_results = true});
  std::string prompts = "[\"one\"";
  for (int i = 0; i < 40; ++i) prompts += R"(, "one more")";
  Client client(http);
  client.Ask(R"({"prompt": )" + prompts + R"(], "n": 128})");
  CHECK(client.Until("\r\n\r\n").starts_with("HTTP/1.1 400"));
  CHECK(client.Until("\"param\":\"n\"").find("128 choices for each of 41 prompts") !=
        std::string::npos);
}

TEST_CASE("the log-probabilities of all prompts of a request share one limit") {
  HttpHouse http({.hold_results = true});
  std::string prompts = "[\"one\"";
  for (int i = 0; i < 24; ++i) prompts += R"(, "one more")";
  Client client(http);
  client.Ask(R"({"prompt": )" + prompts +
             R"(], "n": 128, "max_tokens": 240, "logprobs": 5, "stream": true})");
  CHECK(client.Until("\r\n\r\n").starts_with("HTTP/1.1 400"));
  CHECK(client.Until("\"param\":\"prompt[").find("log-probabilities") != std::string::npos);
  client.Close();
  http.house.WaitUntilIdle();
}

// The server's socket of a client's connection: it is in this process.
int ServersEnd(const Client& client) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.sin_family == AF_INET && ntohs(peer.sin_port) == client.port()) return fd;
  }
  FAIL("the server has no such connection");
  return -1;
}

TEST_CASE("a client whose host vanishes is detected") {
  HttpHouse http({}, 1, FrontHouse::Config(),
                 HttpLimits({.header_timeout = std::chrono::seconds(12)}));
  Client client(http);
  client.Get("/health");
  client.Until("\r\n\r\n");
  const int fd = ServersEnd(client);
  const auto option = [fd](int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &length) == 0);
    return value;
  };
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) <= 60);
  CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 12'000);
}

TEST_CASE("the error names an address that cannot be used") {
  FrontHouse house;
  HttpOptions options;
  options.address = house.server->address();
  const auto taken = HttpServer::Start(options, house.access, house.frontend.get(), {}, nullptr);
  CHECK(absl::IsUnavailable(taken.status()));
  CHECK(std::string(taken.status().message()).find(options.address) != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::router::http
