#include "worker/kv_exchange/block_times.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

TEST_CASE("Block times: calls of different sizes give a time per call and a time per block") {
  BlockTimes times;
  CHECK(times.SecondsFor(100, true) == 0);
  for (const uint32_t n : {4, 8, 16, 32}) times.Observe(n, 0.010 + 0.002 * n);
  CHECK(times.SecondsFor(100, true) == Catch::Approx(0.210));
  CHECK(times.SecondsFor(1, true) == Catch::Approx(0.012));
}

TEST_CASE("Block times: calls of one size tell nothing about larger ones") {
  BlockTimes times;
  for (int i = 0; i < 5; ++i) times.Observe(4, 0.010);
  CHECK(times.SecondsFor(4, true) == Catch::Approx(0.010));
  CHECK(times.SecondsFor(1000, true) == Catch::Approx(0.010));
  CHECK(times.SecondsFor(1000, false) == Catch::Approx(2.5));
}

TEST_CASE("Block times: what becomes slow is soon known to be slow") {
  BlockTimes times;
  for (int i = 0; i < 100; ++i) times.Observe(4 << (i % 4), 0.001 * (4 << (i % 4)));
  for (int i = 0; i < 50; ++i) times.Observe(4 << (i % 4), 0.1 * (4 << (i % 4)));
  CHECK(times.SecondsFor(100, true) > 5);
}

TEST_CASE("Block times: noise gives no negative times") {
  BlockTimes times;
  times.Observe(4, 0.5);
  times.Observe(64, 0.1);
  CHECK(times.SecondsFor(1, true) > 0);
  CHECK(times.SecondsFor(1000, true) > 0);
}

}  // namespace
}  // namespace stagecoach::worker
