#include "common/unix_time.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

using std::chrono::nanoseconds;

TEST_CASE("times of day keep the order and the distances of steady-clock times") {
  const UnixClock::Moment moment = std::chrono::steady_clock::now();
  const UnixClock clock;
  CHECK(clock.At(moment) == clock.At(moment));
  CHECK(clock.At(moment + nanoseconds(7)) - clock.At(moment) == 7);
  CHECK(clock.At(moment) - clock.At(moment - nanoseconds(1'000'000'007)) == 1'000'000'007);
}

TEST_CASE("a time of day lies between readings before and after it") {
  const uint64_t before = UnixNanoseconds();
  const UnixClock clock;
  const UnixClock::Moment moment = std::chrono::steady_clock::now();
  const uint64_t after = UnixNanoseconds();
  // The result is as exact as the clocks' readings are close to each other.
  CHECK(clock.At(moment) + 1'000'000'000 > before);
  CHECK(clock.At(moment) < after + 1'000'000'000);
}

}  // namespace
}  // namespace stagecoach
