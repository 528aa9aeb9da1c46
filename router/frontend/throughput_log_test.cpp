#include "router/frontend/throughput_log.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach::router {
namespace {

SchedulerSnapshot After(uint64_t n_prompt, uint64_t n_generated) {
  SchedulerSnapshot snapshot;
  snapshot.prompt_tokens = n_prompt;
  snapshot.generated_tokens = n_generated;
  return snapshot;
}

TEST_CASE("a log line has throughput, running and waiting requests, and the fullest KV group") {
  SchedulerSnapshot now = After(1'100, 2'050);
  now.running = 3;
  now.waiting = 2;
  now.kv = {{.window = 0, .total_blocks = 100, .free_blocks = 75},
            {.window = 32, .total_blocks = 10, .free_blocks = 9}};
  CHECK(ThroughputLine(After(100, 50), now, 10) ==
        "100.0 prompt tokens/s, 200.0 generated tokens/s; 3 sequences run, 2 wait; 25 % of the KV "
        "cache in use");
}

TEST_CASE("an idle server logs nothing, a server without progress does") {
  CHECK(ThroughputLine(After(7, 9), After(7, 9), 10).empty());
  SchedulerSnapshot stuck = After(7, 9);
  stuck.running = 1;
  CHECK(ThroughputLine(After(7, 9), stuck, 10).find("0.0 generated tokens/s; 1 sequences run") !=
        std::string::npos);
}

TEST_CASE("lines are logged repeatedly, and a silent scheduler costs only its own line") {
  uint64_t n_read = 0;
  std::vector<std::string> lines;
  std::promise<void> enough;
  {
    const ThroughputLog log(
        [&]() -> std::optional<SchedulerSnapshot> {
          if (++n_read == 2) return std::nullopt;
          return After(0, n_read * 1'000);
        },
        [&](const std::string& line) {
          lines.push_back(line);
          if (lines.size() == 3) enough.set_value();
        },
        std::chrono::milliseconds(1));
    enough.get_future().wait();
  }
  CHECK(n_read >= 4);
  for (const std::string& line : lines) {
    CHECK(line.find("0.0 prompt tokens/s") != std::string::npos);
  }
}

}  // namespace
}  // namespace stagecoach::router
