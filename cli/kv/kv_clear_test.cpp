#include "cli/kv/kv_clear.h"

#include <catch2/catch_test_macros.hpp>

#include "cli/kv/testing/toy_store.h"

namespace stagecoach::cli::kv {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

TEST_CASE("values of at least an age are counted and deleted") {
  ToyStore store;
  store.Add(1, 0, 100, seconds(7));
  store.Add(2, 0, 200, hours(1));
  store.Add(3, 0, 400, hours(2));
  CHECK(CountOld(store, std::nullopt)->n_values == 3);
  CHECK(CountOld(store, std::nullopt)->bytes == 700);
  CHECK(CountOld(store, hours(1))->bytes == 600);
  CHECK(CountOld(store, hours(3))->n_values == 0);
  CHECK(DeleteOld(store, hours(1))->n_values == 2);
  REQUIRE(store.values.size() == 1);
  CHECK(store.values[0].stored.bytes == 100);
  const auto rest = DeleteOld(store, std::nullopt);
  CHECK(rest->n_values == 1);
  CHECK(rest->bytes == 100);
  CHECK(store.values.empty());
  CHECK(DeleteOld(store, std::nullopt)->n_values == 0);
}

TEST_CASE("without ages, only all values can be deleted") {
  ToyStore store;
  store.Add(1, 0, 100, std::nullopt);
  CHECK(DeleteOld(store, seconds(0)).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(store.values.size() == 1);
  CHECK(DeleteOld(store, std::nullopt)->n_values == 1);
}

}  // namespace
}  // namespace stagecoach::cli::kv
