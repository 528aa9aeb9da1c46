#include "worker/kv_store/circuit_breaker.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const CircuitBreaker::Clock::time_point kStart{};

// A call that is let through.
CircuitBreaker::Round Allowed(CircuitBreaker& breaker, CircuitBreaker::Clock::time_point now) {
  const auto round = breaker.Ask(now);
  REQUIRE(round.has_value());
  return round.value_or(0);
}

// Whether the failure of a call opens the breaker.
bool Fail(CircuitBreaker& breaker, CircuitBreaker::Clock::time_point now) {
  return breaker.Failed(Allowed(breaker, now), now);
}

bool Succeed(CircuitBreaker& breaker, CircuitBreaker::Clock::time_point now) {
  return breaker.Succeeded(Allowed(breaker, now));
}

void FailThrice(CircuitBreaker& breaker, CircuitBreaker::Clock::time_point now) {
  CHECK_FALSE(Fail(breaker, now));
  CHECK_FALSE(Fail(breaker, now));
  CHECK(Fail(breaker, now));
}

TEST_CASE("three failures in a row open it") {
  CircuitBreaker breaker({});
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(Fail(breaker, kStart));
    CHECK_FALSE(Fail(breaker, kStart));
    CHECK_FALSE(Succeed(breaker, kStart));
  }
  FailThrice(breaker, kStart);
  CHECK_FALSE(breaker.Ask(kStart));
}

TEST_CASE("it refuses for a second, then for twice as long each time, up to 30 seconds") {
  CircuitBreaker breaker({});
  auto now = kStart;
  FailThrice(breaker, now);
  for (const int wait_s : {1, 2, 4, 8, 16, 30, 30}) {
    CAPTURE(wait_s);
    CHECK_FALSE(breaker.Ask(now + seconds(wait_s) - milliseconds(1)));
    now += seconds(wait_s);
    CHECK_FALSE(Fail(breaker, now));
    CHECK_FALSE(breaker.Ask(now));
  }
}

TEST_CASE("a success closes it and resets its times") {
  CircuitBreaker breaker({});
  FailThrice(breaker, kStart);
  Fail(breaker, kStart + seconds(1));
  CHECK(Succeed(breaker, kStart + seconds(3)));
  FailThrice(breaker, kStart + seconds(3));
  CHECK_FALSE(breaker.Ask(kStart + milliseconds(3'999)));
  CHECK(breaker.Ask(kStart + seconds(4)));
}

TEST_CASE("calls that fail at the same time count as one cause") {
  CircuitBreaker breaker({});
  for (int i = 0; i < 8; ++i) CHECK(breaker.Ask(kStart) == 0);
  int n_opened = 0;
  for (int i = 0; i < 8; ++i) n_opened += breaker.Failed(0, kStart) ? 1 : 0;
  CHECK(n_opened == 1);
  CHECK(breaker.Ask(kStart + seconds(1)));
}

TEST_CASE("one call at a time tries whether it works again") {
  CircuitBreaker breaker({});
  FailThrice(breaker, kStart);
  const CircuitBreaker::Round trial = Allowed(breaker, kStart + seconds(1));
  CHECK_FALSE(breaker.Ask(kStart + seconds(100)));
  CHECK(breaker.Succeeded(trial));
  CHECK(breaker.Ask(kStart + seconds(100)));
}

TEST_CASE("what became of calls from before a change says nothing") {
  CircuitBreaker breaker({});
  const CircuitBreaker::Round early = Allowed(breaker, kStart);
  FailThrice(breaker, kStart);
  CHECK_FALSE(breaker.Succeeded(early));
  CHECK_FALSE(breaker.Ask(kStart));
  const CircuitBreaker::Round trial = Allowed(breaker, kStart + seconds(1));
  breaker.Failed(early, kStart + seconds(1));
  CHECK(breaker.Succeeded(trial));
}

}  // namespace
}  // namespace stagecoach::worker
