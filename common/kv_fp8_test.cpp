#include "common/kv_fp8.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

namespace stagecoach {
namespace {

TEST_CASE("a row's scale is the smallest power of two whose codes reach the largest number") {
  CHECK(KvFp8Exponent(448) == 0);
  CHECK(KvFp8Exponent(std::nextafter(448.0f, 449.0f)) == 1);
  CHECK(KvFp8Exponent(-448) == 0);
  CHECK(KvFp8Exponent(224) == -1);
  CHECK(KvFp8Exponent(1) == -8);
  for (int i = 0; i < 80; ++i) {
    const float largest = 1e-6f * std::pow(1.36f, static_cast<float>(i));
    const float scale = PowerOfTwo(KvFp8Exponent(largest));
    CHECK(448 * scale >= largest);
    CHECK(224 * scale < largest);
  }
}

TEST_CASE("scales have limits") {
  CHECK(KvFp8Exponent(0) == kMinKvFp8Exponent);
  CHECK(KvFp8Exponent(1e-30f) == kMinKvFp8Exponent);
  CHECK(KvFp8Exponent(1e30f) == kMaxKvFp8Exponent);
  CHECK(KvFp8Exponent(std::numeric_limits<float>::infinity()) == kMaxKvFp8Exponent);
  CHECK(KvFp8Exponent(std::numeric_limits<float>::quiet_NaN()) == kMaxKvFp8Exponent);
}

TEST_CASE("a scale's bits are those of bfloat16") {
  for (int32_t exponent = kMinKvFp8Exponent; exponent <= kMaxKvFp8Exponent; ++exponent) {
    CHECK(KvFp8Scale(KvFp8ScaleBits(exponent)) == std::ldexp(1.0f, exponent));
  }
}

}  // namespace
}  // namespace stagecoach
