#include "common/encoding/encode_rows.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "common/encoding/rows.h"
#include "common/float_convert.h"

namespace stagecoach {
namespace {

std::vector<float> NormalValues(size_t n, float size) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> RoundTrip(const Encoding& encoding, const std::vector<float>& values,
                             size_t cols) {
  const size_t n_rows = values.size() / cols;
  std::vector<uint8_t> rows(n_rows * RowBytes(encoding, cols));
  EncodeRows(encoding, values.data(), n_rows, cols, rows.data());
  std::vector<float> decoded(values.size());
  DecodeRows(encoding, rows.data(), n_rows, cols, decoded.data());
  return decoded;
}

double RootMeanSquare(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(a[i] - b[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST_CASE("every e4m3 code is the nearest one to its value, and ties go to the even code") {
  for (int code = 0; code <= 0x7e; ++code) {
    const float value = FloatFromFp8(static_cast<uint8_t>(code));
    CHECK(Fp8FromFloat(value) == code);
    CHECK(Fp8FromFloat(-value) == (code | 0x80));
    if (code == 0x7e) continue;
    const float next = FloatFromFp8(static_cast<uint8_t>(code + 1));
    const float middle = (value + next) / 2;
    CHECK(Fp8FromFloat(middle) == code + code % 2);
    CHECK(Fp8FromFloat(std::nextafter(middle, 0.0F)) == code);
    CHECK(Fp8FromFloat(std::nextafter(middle, next)) == code + 1);
  }
  CHECK(Fp8FromFloat(1e9F) == 0x7e);
  CHECK(Fp8FromFloat(-INFINITY) == 0xfe);
}

TEST_CASE("rows that do not divide into groups have no encoding") {
  CHECK(!EncodingFor(Code::kInt4, DType::kBF16, 48));
  CHECK(EncodingFor(Code::kInt4, DType::kBF16, 96)->group == 32);
  CHECK(EncodingFor(Code::kInt8, DType::kF16, 256)->group == 128);
  CHECK(EncodingFor(Code::kInt8, DType::kF16, 128)->group == 0);
  CHECK(EncodingFor(Code::kInt8, DType::kF16, 256)->scale == DType::kF16);
  CHECK(EncodingFor(Code::kFp8, DType::kBF16, 256) == Encoding(Code::kFp8));
}

TEST_CASE("quantized rows are as near to the values as the format allows") {
  constexpr size_t kCols = 256;
  constexpr float kSize = 0.02F;
  const std::vector<float> values = NormalValues(64 * kCols, kSize);
  // The values are normal. The largest of 128 is near 2.7 deviations, so that INT4's step divided
  // by sqrt(12) is 0.11 of a deviation. FP8 rounds to 4 significant bits.
  for (const auto& [code, most] : {std::pair(Code::kInt4, 0.11), std::pair(Code::kInt8, 0.007),
                                   std::pair(Code::kFp8, 0.027)}) {
    const Encoding encoding = *EncodingFor(code, DType::kBF16, kCols);
    CAPTURE(EncodingName(encoding));
    const std::vector<float> decoded = RoundTrip(encoding, values, kCols);
    CHECK(RootMeanSquare(values, decoded) < most * kSize);
    // A value that a code stands for stays.
    if (code != Code::kInt4) {
      CHECK(RootMeanSquare(RoundTrip(encoding, decoded, kCols), decoded) < 1e-4 * kSize);
    }
  }
}

TEST_CASE("INT4 clips the largest value of a group if that makes the others finer") {
  const Encoding encoding = *EncodingFor(Code::kInt4, DType::kF32, 128);
  std::vector<float> values = NormalValues(128, 1);
  *std::max_element(values.begin(), values.end()) = 6;
  const std::vector<float> decoded = RoundTrip(encoding, values, 128);
  CHECK(*std::max_element(decoded.begin(), decoded.end()) < 5.9F);
}

TEST_CASE("rows of zeros and of tiny values become zeros") {
  for (const Code code : {Code::kInt4, Code::kInt8, Code::kFp8}) {
    const Encoding encoding = *EncodingFor(code, DType::kF16, 128);
    CHECK(RoundTrip(encoding, std::vector<float>(128, 0), 128) == std::vector<float>(128, 0));
  }
  const Encoding encoding = *EncodingFor(Code::kInt4, DType::kF16, 128);
  CHECK(RoundTrip(encoding, std::vector<float>(128, 1e-8F), 128) == std::vector<float>(128, 0));
}

}  // namespace
}  // namespace stagecoach
