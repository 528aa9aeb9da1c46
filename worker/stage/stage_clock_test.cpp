#include "worker/stage/stage_clock.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace stagecoach::worker {

TEST_CASE("idle time is the time without steps, and it never decreases") {
  using std::chrono::milliseconds;
  IdleTime idle;
  const IdleTime::Clock::time_point start = IdleTime::Clock::now();
  idle.Settle(start);
  const double before = idle.ms();
  const auto since_start = [&] { return std::round(idle.ms() - before); };
  idle.Settle(start + milliseconds(100));  // a first step starts
  CHECK(since_start() == 100);
  idle.Settle(start + milliseconds(400), 290);  // and has finished
  CHECK(since_start() == 110);
  // The next step began before the host learned that.
  idle.Settle(start + milliseconds(500), 102);
  CHECK(since_start() == 110);
  idle.Settle(start + milliseconds(600), 97);
  CHECK(since_start() == 111);
  idle.Settle(start + milliseconds(650));
  CHECK(since_start() == 161);
}

}  // namespace stagecoach::worker
