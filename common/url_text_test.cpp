#include "common/url_text.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach {
namespace {

TEST_CASE("escapes are decoded, and invalid ones stay") {
  CHECK(PercentDecoded("a%2fb%3A") == "a/b:");
  CHECK(PercentDecoded("100%") == "100%");
  CHECK(PercentDecoded("%zz") == "%zz");
}

TEST_CASE("a query's first field of a name counts") {
  CHECK(QueryValue("a=1&b=2&b=3", "b") == "2");
  CHECK(QueryValue("ab=1&b", "b").empty());
  CHECK(QueryValue("", "b").empty());
}

}  // namespace
}  // namespace stagecoach
