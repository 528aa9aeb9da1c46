#include "cli/check/memory_fit.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::check {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST_CASE("weights of all replicas and the KV cache that was asked for must fit") {
  ModelFacts facts;
  facts.stages = {{.n_layers = 1, .weights_bytes = 3 * kGiB},
                  {.n_layers = 1, .weights_bytes = 2 * kGiB}};
  CHECK(CheckMemoryFits(facts, 1, 0, 5 * kGiB).ok());
  CHECK(CheckMemoryFits(facts, 1, kGiB, 7 * kGiB).ok());
  CHECK(!CheckMemoryFits(facts, 1, kGiB, 6 * kGiB).ok());
  const absl::Status refused = CheckMemoryFits(facts, 2, 0, 9 * kGiB);
  CHECK(
      std::string(refused.message())
          .starts_with(
              "the weights take 10.0 GiB, and this machine, or its cgroup, has 9.0 GiB of memory"));
}

}  // namespace
}  // namespace stagecoach::check
