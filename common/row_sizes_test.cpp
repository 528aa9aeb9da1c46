#include "common/row_sizes.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace stagecoach {
namespace {

TEST_CASE("row sizes: powers of two, and from 16 on also the values halfway between") {
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size <= 256; size = RowSizeAfter(size)) sizes.push_back(size);
  CHECK(sizes == std::vector<int32_t>{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256});
}

TEST_CASE("row sizes: each covers all row counts above the previous size") {
  for (int32_t n = 1; n <= 10000; ++n) {
    const int32_t size = RowSizeFor(n);
    REQUIRE(size >= n);
    REQUIRE(FewestRowsOf(size) <= n);
    REQUIRE(RowSizeFor(FewestRowsOf(size)) == size);
    REQUIRE(RowSizeFor(size) == size);
  }
}

}  // namespace
}  // namespace stagecoach
