#include "worker/kv_store/circuit_breaker.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const CircuitBreaker::Clock::time_point kStart{};

void FailThrice(CircuitBreaker& breaker, CircuitBreaker::Clock::time_point now) {
  for (int i = 0; i < 3; ++i) {
    CHECK(breaker.Allows(now));
    breaker.Failed(now);
  }
}

TEST_CASE("three failures in a row open it") {
  CircuitBreaker breaker({});
  for (int i = 0; i < 5; ++i) {
    breaker.Failed(kStart);
    breaker.Failed(kStart);
    CHECK_FALSE(breaker.is_open());
    breaker.Succeeded();
  }
  FailThrice(breaker, kStart);
  CHECK(breaker.is_open());
  CHECK_FALSE(breaker.Allows(kStart));
}

TEST_CASE("it refuses for a second, then for twice as long each time, up to 30 seconds") {
  CircuitBreaker breaker({});
  auto now = kStart;
  FailThrice(breaker, now);
  for (const int wait_s : {1, 2, 4, 8, 16, 30, 30}) {
    CAPTURE(wait_s);
    CHECK_FALSE(breaker.Allows(now + seconds(wait_s) - milliseconds(1)));
    now += seconds(wait_s);
    CHECK(breaker.Allows(now));
    breaker.Failed(now);
    CHECK_FALSE(breaker.Allows(now));
  }
}

TEST_CASE("a success closes it and resets its times") {
  CircuitBreaker breaker({});
  FailThrice(breaker, kStart);
  breaker.Failed(kStart + seconds(1));
  CHECK(breaker.Allows(kStart + seconds(3)));
  breaker.Succeeded();
  CHECK_FALSE(breaker.is_open());
  FailThrice(breaker, kStart + seconds(3));
  CHECK_FALSE(breaker.Allows(kStart + milliseconds(3'999)));
  CHECK(breaker.Allows(kStart + seconds(4)));
}

}  // namespace
}  // namespace stagecoach::worker
