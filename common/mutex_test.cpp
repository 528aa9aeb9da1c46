#include "common/mutex.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <stop_token>
#include <thread>

namespace stagecoach {
namespace {

TEST_CASE("WaitForStop sees a stop that comes at any time") {
  for (int i = 0; i < 3000; ++i) {
    bool stopped = false;
    {
      const std::jthread waits([&stopped](const std::stop_token& stop) {
        stopped = WaitForStop(stop, std::chrono::hours(1));
      });
    }
    REQUIRE(stopped);
  }
}

}  // namespace
}  // namespace stagecoach
