#include "common/size.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

TEST_CASE("sizes are parsed as people write them") {
  CHECK(ParseBytes("1073741824").value() == 1073741824u);
  CHECK(ParseBytes("512MiB").value() == 512u << 20);
  CHECK(ParseBytes("1.5 GiB").value() == 3u << 29);
  CHECK(ParseBytes("4GB").value() == 4000000000u);
  CHECK(ParseBytes("64k").value() == 65536u);
  CHECK(ParseBytes("0").value() == 0u);
}

TEST_CASE("invalid sizes are refused") {
  for (const char* text : {"", "GiB", "-1", "four", "1e30", "nan", "inf", "1 2", "12XB"}) {
    CAPTURE(text);
    CHECK(ParseBytes(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("sizes are shown with one decimal") {
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(1023) == "1023 B");
  CHECK(FormatBytes(1536) == "1.5 KiB");
  CHECK(FormatBytes(3u << 29) == "1.5 GiB");
}

}  // namespace
}  // namespace stagecoach
