// Tests resuming streams over HTTP. Tests with real clients also check that nothing is lost,
// wherever a stream is cut.
#include <boost/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "router/frontend/http/testing/http_house.h"

namespace stagecoach::router::http {
namespace {

using std::chrono::milliseconds;

std::string Resumable(const std::string& id) {
  return R"(, "stream": true, "stream_options": {"resumable": true}, "request_id": ")" + id + "\"";
}

// A reader's state of a stream; it outlives the reader's connections.
struct Listener {
  // Reads one more event; false at the end.
  bool Hear(Client& client) {
    const std::string said = client.Until("\n\n");
    const size_t data = said.find("data: ");
    if (data == std::string::npos) return false;
    const std::string json = said.substr(data + 6);
    if (json.starts_with("[DONE]")) {
      done = true;
      return false;
    }
    const size_t id = said.find("id: ");
    if (id != std::string::npos && id < data) {
      position = said.substr(id + 4, said.find('\n', id) - id - 4);
    }
    text += std::string(boost::json::parse(json.substr(0, json.size() - 2))
                            .at("choices")
                            .at(0)
                            .at("text")
                            .as_string());
    return true;
  }

  std::string position = "0";
  std::string text;
  bool done = false;
};

TEST_CASE("clients that lose their connections under load resume where they stopped") {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kStreams = 12;
  for (const int n_threads : {1, 3}) {
    HttpHouse http({.max_delay_us = 200}, n_threads);
    std::vector<std::string> texts(size_t{kThreads} * kStreams);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&http, &texts, t] {
        for (uint32_t i = t * kStreams; i < (t + 1) * kStreams; ++i) {
          const std::string id = "stream-" + std::to_string(i);
          Listener listener;
          for (uint32_t n = 0; !listener.done; ++n) {
            Client client(http);
            if (n == 0) {
              client.Ask(Body("client", i, 40, Resumable(id)));
            } else if (n % 2 == 0) {
              client.Get("/v1/streams/" + id + "?from=" + listener.position);
            } else {
              client.Get("/v1/streams/cmpl-" + id, "Last-Event-ID: " + listener.position + "\r\n");
            }
            for (uint32_t k = 0; k < (i + n) % 7 + 1; ++k) {
              if (!listener.Hear(client)) break;
            }
          }
          texts[i] = listener.text;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t i = 0; i < texts.size(); ++i) CHECK(texts[i] == ExpectedText("client", i, 40));
    http.house.WaitUntilIdle();
  }
}

TEST_CASE("a refused resumable stream returns a status and frees its id") {
  SchedulerConfig config = FrontHouse::Config();
  config.max_sequences = 1;
  config.max_waiting = 1;
  HttpHouse http({.hold_results = true}, 1, config);
  Client running(http);
  running.Ask(Body("running", 1, 20, Resumable("running")));
  http.house.WaitUntilRunning(1);
  Client waiting(http);
  waiting.Ask(Body("waiting", 1, 20));
  while (http.house.scheduler->Snapshot().get().waiting < 1) {
  }
  for (int i = 0; i < 2; ++i) {
    Client refused(http);
    refused.Ask(Body("full", 1, 20, Resumable("full")));
    CHECK(refused.Until("\r\n\r\n").starts_with("HTTP/1.1 429"));
    Client again(http);
    again.Ask(Body("running", 1, 20, Resumable("running")));
    CHECK(again.Until("\r\n\r\n").starts_with("HTTP/1.1 409"));
  }
  http.house.pipeline.ReleaseAll();
  CHECK(running.Until(kLastEvent).ends_with(kLastEvent));
}

TEST_CASE("a stream without a reader expires, and its sequence ends") {
  HttpHouse http({.hold_results = true}, 1, FrontHouse::Config(), HttpLimits(),
                 {.keep = milliseconds(1)});
  {
    Client client(http);
    client.Ask(Body("left", 1, 200, Resumable("left")));
    http.house.WaitUntilRunning(1);
  }
  http.house.pipeline.ReleaseAll();
  http.house.WaitUntilIdle();
  while (true) {
    Client client(http);
    client.Get("/v1/streams/left");
    const std::string head = client.Until("\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 404")) continue;
    CHECK(client.Until("}}").find("stream_not_found") != std::string::npos);
    break;
  }
}

TEST_CASE("a shutdown ends resumable streams and their readers") {
  HttpHouse http({.hold_results = true});
  {
    Client client(http);
    client.Ask(Body("left", 1, 200, Resumable("left")));
    http.house.WaitUntilRunning(1);
  }
  Client reader(http);
  reader.Get("/v1/streams/left");
  http.house.pipeline.Release(2);
  CHECK(reader.Until("\n\n").starts_with("HTTP/1.1 200"));
  http.server->Shutdown(milliseconds(0));
  reader.Until("nothing more");
}

}  // namespace
}  // namespace stagecoach::router::http
