#include "router/access/memory_budget.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::router {
namespace {

TEST_CASE("leases share a budget and return what they took") {
  MemoryBudget budget(100);
  MemoryBudget::Lease first(&budget);
  CHECK(first.GrowTo(60));
  {
    MemoryBudget::Lease second(&budget);
    CHECK_FALSE(second.GrowTo(41));
    CHECK(second.GrowTo(40));
    CHECK_FALSE(first.GrowTo(61));
  }
  CHECK(budget.used_bytes() == 60);
  first.ShrinkTo(10);
  CHECK(budget.used_bytes() == 10);
  MemoryBudget::Lease moved = std::move(first);
  moved = MemoryBudget::Lease();
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("a small lease takes nothing and succeeds when the budget is used up") {
  MemoryBudget budget(100, /*small_bytes=*/8);
  MemoryBudget::Lease large(&budget), small(&budget);
  REQUIRE(large.GrowTo(100));
  CHECK(small.GrowTo(8));
  CHECK_FALSE(small.GrowTo(9));
  large.ShrinkTo(8);
  CHECK(budget.used_bytes() == 0);
  CHECK(small.GrowTo(9));
  CHECK(budget.used_bytes() == 9);
}

TEST_CASE("a lease without a budget has no limit") {
  MemoryBudget::Lease lease;
  CHECK(lease.GrowTo(size_t{1} << 60));
  lease.ShrinkTo(0);
}

}  // namespace
}  // namespace stagecoach::router
