#include "common/sampling_numbers.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

namespace stagecoach {
namespace {

TEST_CASE("a range contains what its text says") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr SamplingNumber open{.name = "a", .above_min = true, .max = 1};
  CHECK(RangeText(open) == "in (0, 1]");
  CHECK(BoundsText(open) == "(0, 1]");
  CHECK(open.Holds(1));
  CHECK(open.Holds(0.5));
  CHECK_FALSE(open.Holds(0));
  CHECK_FALSE(open.Holds(1.01));

  constexpr SamplingNumber closed{.name = "b", .min = -2, .max = 2};
  CHECK(RangeText(closed) == "in [-2, 2]");
  CHECK(closed.Holds(-2));
  CHECK_FALSE(closed.Holds(-2.1));

  constexpr SamplingNumber endless{.name = "c"};
  CHECK(RangeText(endless) == "a number >= 0");
  CHECK(BoundsText(endless).empty());
  CHECK(endless.Holds(1e30));
  CHECK_FALSE(endless.Holds(kInf));
  CHECK_FALSE(endless.Holds(std::numeric_limits<double>::quiet_NaN()));
  CHECK(RangeText({.name = "d", .above_min = true}) == "a number > 0");

  constexpr SamplingNumber integer{.name = "e",
                                   .is_integer = true,
                                   .min = -1,
                                   .max = std::numeric_limits<int32_t>::max(),
                                   .note = " (-1: off)"};
  CHECK(RangeText(integer) == ">= -1 (-1: off)");
  CHECK(integer.Holds(std::numeric_limits<int32_t>::max()));
}

TEST_CASE("a default number is within its range") {
  for (const SamplingNumber& number : kSamplingNumbers) {
    INFO(number.name);
    CHECK(number.Holds(number.absent));
  }
}

}  // namespace
}  // namespace stagecoach
