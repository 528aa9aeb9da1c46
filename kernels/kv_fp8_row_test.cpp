#include "kernels/kv_fp8_row.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "common/encoding/rows.h"
#include "common/kv_fp8.h"

namespace stagecoach::kernels {
namespace {

using Floats = std::vector<float>;

// What a cache gives back for a row.
Floats Stored(const Floats& row, size_t token = 5) {
  std::vector<uint8_t> head(KvFp8HeadBytes(row.size()), 0xff);
  StoreKvFp8Row(row, token, head.data());
  Floats stored(row.size());
  LoadKvFp8Row(head.data(), token, stored);
  return stored;
}

TEST_CASE("a stored number is off by at most 1 in 16, or half the smallest step of its row") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const float deviation : {1e-3f, 1.0f, 300.0f}) {
    Floats row(128);
    for (float& x : row) x = deviation * normal(random);
    float largest = 0;
    for (const float x : row) largest = std::max(largest, std::abs(x));
    const float smallest_step = 0x1p-9f * PowerOfTwo(KvFp8Exponent(largest));
    const Floats stored = Stored(row);
    CHECK(Stored(stored) == stored);
    for (size_t i = 0; i < row.size(); ++i) {
      CHECK(std::abs(stored[i] - row[i]) <=
            std::max(0x1p-4f * std::abs(row[i]), smallest_step / 2));
    }
  }
}

TEST_CASE("a row of codes times a scale stays as it is") {
  for (int32_t exponent = kMinKvFp8Exponent; exponent <= kMaxKvFp8Exponent; ++exponent) {
    Floats row;
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) == 0x7f) continue;  // NaN
      row.push_back(FloatFromFp8(static_cast<uint8_t>(code)) * PowerOfTwo(exponent));
    }
    CHECK(Stored(row) == row);
  }
}

TEST_CASE("a row's bytes are its codes and its scale, and other rows keep theirs") {
  constexpr size_t kDim = 4, kToken = 2;
  std::vector<uint8_t> head(KvFp8HeadBytes(kDim), 0xff), expected = head;
  StoreKvFp8Row(Floats{448 * 8, 0, -8, 0x1p-10f}, kToken, head.data());
  const std::vector<uint8_t> codes = {0x7e, 0x00, 0xb8, 0x00};  // 448, 0, -1
  std::copy(codes.begin(), codes.end(), expected.begin() + kToken * kDim);
  const size_t scale = KvFp8CodeBytes(kDim) + kToken * sizeof(uint16_t);
  expected[scale] = 0x00;  // 8 as bfloat16, the low byte first
  expected[scale + 1] = 0x41;
  CHECK(head == expected);
}

TEST_CASE("zeros, huge numbers, infinity and NaN") {
  CHECK(Stored({0, -0.0f, 0}) == Floats{0, 0, 0});
  CHECK(Stored({1e30f, 1}) == Floats{57344, 1});
  CHECK(Stored({-INFINITY, 1e30f}) == Floats{-57344, 57344});
  // As in a row whose largest number is the largest one that can be stored.
  CHECK(Stored({0.3f, NAN, 3000})[0] == Stored({0.3f, 57344, 3000})[0]);
  CHECK(Stored({-NAN, 0.3f, 3000})[2] == Stored({57344, 0.3f, 3000})[2]);
}

}  // namespace
}  // namespace stagecoach::kernels
