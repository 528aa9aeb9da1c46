#include "common/float_convert.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>

namespace stagecoach {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("Every 16-bit value survives a trip through float") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (!std::isnan(FloatFromF16(half))) CHECK(F16FromFloat(FloatFromF16(half)) == half);
    if (!std::isnan(FloatFromBF16(half))) CHECK(BF16FromFloat(FloatFromBF16(half)) == half);
  }
}

TEST_CASE("F16 rounds to nearest, ties to even") {
  CHECK(FloatFromF16(0x3c00) == 1.0f);
  CHECK(FloatFromF16(0x0001) == 0x1p-24f);
  CHECK(FloatFromF16(0x83ff) == -1023 * 0x1p-24f);
  CHECK(F16FromFloat(1.0f + 0x1p-11f) == 0x3c00);             // tie: to even
  CHECK(F16FromFloat(1.0f + 0x1p-11f + 0x1p-20f) == 0x3c01);  // above the tie
  CHECK(F16FromFloat(1.0f + 0x3p-11f) == 0x3c02);
  CHECK(F16FromFloat(65504.0f) == 0x7bff);
  CHECK(F16FromFloat(65519.0f) == 0x7bff);
  CHECK(F16FromFloat(65520.0f) == 0x7c00);
  CHECK(F16FromFloat(-kInf) == 0xfc00);
  CHECK(F16FromFloat(0x1p-25f) == 0);  // tie with the smallest subnormal: to even
  CHECK(F16FromFloat(0x1.8p-25f) == 1);
  CHECK(F16FromFloat(0x1.ffcp-15f) == 0x0400 - 0);  // rounds up to the smallest normal
  CHECK(std::isnan(FloatFromF16(F16FromFloat(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("BF16 rounds to nearest, ties to even") {
  CHECK(BF16FromFloat(1.0f) == 0x3f80);
  CHECK(BF16FromFloat(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(BF16FromFloat(1.0f + 0x3p-8f) == 0x3f82);
  CHECK(BF16FromFloat(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(FloatFromBF16(BF16FromFloat(-kInf)) == -kInf);
  CHECK(std::isnan(FloatFromBF16(BF16FromFloat(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace stagecoach
