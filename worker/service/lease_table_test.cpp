#include "worker/service/lease_table.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace stagecoach::worker {
namespace {

v1::Lease Lease(uint64_t epoch, const std::string& holder) {
  v1::Lease lease;
  lease.set_epoch(epoch);
  lease.set_holder(holder);
  return lease;
}

TEST_CASE("the router with the highest epoch has the lease, and others learn its name") {
  LeaseTable table;
  CHECK(table.Check(Lease(5, "a")).message().find("call Load first") != std::string::npos);
  REQUIRE(table.Take(Lease(5, "a")).ok());
  CHECK(table.Check(Lease(5, "a")).ok());
  CHECK(absl::IsFailedPrecondition(table.Check(Lease(5, "b"))));
  CHECK(absl::IsFailedPrecondition(table.Take(Lease(4, "b"))));
  CHECK(absl::IsFailedPrecondition(table.Take(Lease(5, "b"))));
  REQUIRE(table.Take(Lease(6, "b")).ok());
  const absl::Status refused = table.Check(Lease(5, "a"));
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(refused.message().find("router b of epoch 6") != std::string::npos);
  const absl::Status taken = table.StillHeld(Lease(5, "a"));
  CHECK(absl::IsAborted(taken));
  CHECK(taken.message().find("router b of epoch 6") != std::string::npos);
  CHECK(table.StillHeld(Lease(6, "b")).ok());
}

TEST_CASE("only the holder raises the epoch without a load, and nobody lowers it") {
  LeaseTable table;
  constexpr auto kMayRise = LeaseTable::kEpochMayRise;
  CHECK_FALSE(table.Check(Lease(5, "a"), kMayRise).ok());
  REQUIRE(table.Take(Lease(5, "a")).ok());
  CHECK(table.Check(Lease(5, "a"), kMayRise).ok());
  CHECK(absl::IsFailedPrecondition(table.Check(Lease(7, "a"))));
  REQUIRE(table.Check(Lease(7, "a"), kMayRise).ok());
  table.Renew(Lease(7, "a"));
  CHECK(absl::IsFailedPrecondition(table.Check(Lease(6, "a"), kMayRise)));
  CHECK(absl::IsFailedPrecondition(table.Take(Lease(6, "a"))));
  CHECK(absl::IsFailedPrecondition(table.Check(Lease(8, "b"), kMayRise)));
  CHECK(table.Check(Lease(7, "a")).ok());
}

TEST_CASE("a lease needs an epoch and a holder") {
  LeaseTable table;
  for (const v1::Lease& lease : {Lease(0, "a"), Lease(1, ""), Lease(1, std::string(1000, 'a'))}) {
    CHECK(absl::IsInvalidArgument(table.Take(lease)));
    CHECK(absl::IsInvalidArgument(table.Check(lease)));
  }
}

}  // namespace
}  // namespace stagecoach::worker
