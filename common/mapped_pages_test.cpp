#include "common/mapped_pages.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>

#include "common/left_behind.h"

namespace stagecoach {
namespace {

constexpr size_t kBytes = size_t{8} << 20;

TEST_CASE("pages are backed from their first write until the end") {
  const int64_t before = ResidentBytes();
  MappedPages pages = MapPages(kBytes);
  REQUIRE(pages != nullptr);
  CHECK(ResidentBytes() - before < int64_t{kBytes / 2});
  auto* data = static_cast<uint8_t*>(pages.get());
  CHECK(data[kBytes - 1] == 0);
  std::fill(data, data + kBytes, 1);
  CHECK(ResidentBytes() - before > int64_t{kBytes / 2});
  pages = nullptr;
  CHECK(ResidentBytes() - before < int64_t{kBytes / 2});
}

TEST_CASE("more pages than there can be") { CHECK(MapPages(SIZE_MAX / 2) == nullptr); }

}  // namespace
}  // namespace stagecoach
