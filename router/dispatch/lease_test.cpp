#include "router/dispatch/lease.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

TEST_CASE("an epoch rises with time and exceeds those of routers whose clock is ahead") {
  const v1::Lease by_time = MakeLease(0, "me");
  CHECK(by_time.epoch() > 1'700'000'000'000);
  CHECK(MakeLease(5, "me").epoch() >= by_time.epoch());
  const uint64_t ahead = by_time.epoch() + 3'600'000;
  CHECK(MakeLease(ahead, "me").epoch() == ahead + 1);
}

TEST_CASE("two routers on one machine have different leases") {
  CHECK(NewLeaseHolder() != NewLeaseHolder());
}

}  // namespace
}  // namespace stagecoach::router
