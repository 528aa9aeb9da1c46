#include "common/encoding/rows.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/float_convert.h"

namespace stagecoach {
namespace {

TEST_CASE("e4m3 codes have the values of the format") {
  CHECK(FloatFromFp8(0x00) == 0);
  CHECK(std::signbit(FloatFromFp8(0x80)));
  CHECK(FloatFromFp8(0x01) == 0x1p-9f);
  CHECK(FloatFromFp8(0x07) == 7 * 0x1p-9f);
  CHECK(FloatFromFp8(0x08) == 0x1p-6f);
  CHECK(FloatFromFp8(0x38) == 1);
  CHECK(FloatFromFp8(0xb9) == -1.125f);
  CHECK(FloatFromFp8(0x7e) == 448);
}

TEST_CASE("MXFP4 has the values of e2m1, times a power of 2 for 32 inputs") {
  std::vector<uint8_t> row(RowBytes(MxFp4Encoding(), 64));
  REQUIRE(row.size() == 2 + 32);
  row[0] = 127;
  row[1] = 124;
  for (size_t i = 0; i < 32; ++i)
    row[2 + i] = static_cast<uint8_t>(i % 8 * 2 | (i % 8 * 2 + 1) << 4);
  std::vector<float> values(64);
  DecodeRows(MxFp4Encoding(), row.data(), 1, 64, values.data());
  const std::vector<float> expected = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                       0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (size_t i = 0; i < 64; ++i) CHECK(values[i] == expected[i % 16] * (i < 32 ? 1 : 0.125f));

  row[0] = 0;  // the smallest scale; 0.5 times it is still exact
  row[1] = 254;
  DecodeRows(MxFp4Encoding(), row.data(), 1, 64, values.data());
  CHECK(values[1] == 0x1p-128f);
  CHECK(values[32 + 2] == 0x1p127f);
  CHECK(std::isinf(values[32 + 7]));
}

TEST_CASE("NVFP4 has the values of e2m1, times an e4m3 scale for 16 inputs, times the matrix's") {
  std::vector<uint8_t> row(RowBytes(NvFp4Encoding(), 32));
  REQUIRE(row.size() == 4 + 2 + 16);
  const float matrix_scale = 0.25f;
  std::memcpy(row.data(), &matrix_scale, sizeof(matrix_scale));
  row[4] = 0x38;  // 1
  row[5] = 0x01;  // 2^-9
  for (size_t i = 0; i < 16; ++i)
    row[6 + i] = static_cast<uint8_t>(i % 8 * 2 | (i % 8 * 2 + 1) << 4);
  std::vector<float> values(32);
  DecodeRows(NvFp4Encoding(), row.data(), 1, 32, values.data());
  const std::vector<float> expected = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                       0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (size_t i = 0; i < 32; ++i) {
    CHECK(values[i] == expected[i % 16] * 0.25f * (i < 16 ? 1 : 0x1p-9f));
  }
  CHECK(EncodedBytes(NvFp4Encoding(), 8, 32) == 8 * (2 + 16) + 4);
}

TEST_CASE("a row of grouped codes is scale * (code - zero)") {
  Encoding encoding(Code::kInt4);
  encoding.scale = DType::kF16;
  encoding.group = 2;
  const uint16_t scales[] = {F16FromFloat(0.5f), F16FromFloat(2)};
  std::vector<uint8_t> row(RowBytes(encoding, 4));
  CHECK(row.size() == 4 + 2);
  std::memcpy(row.data(), scales, sizeof(scales));
  row[4] = 0x0f | 0x10;
  row[5] = 0x80;
  std::vector<float> values(4);
  DecodeRows(encoding, row.data(), 1, 4, values.data());
  CHECK(values == std::vector<float>{3.5f, -3.5f, -16, 0});

  encoding.has_zeros = true;
  row.insert(row.begin() + 4, {15, 16});
  CHECK(row.size() == RowBytes(encoding, 4));
  DecodeRows(encoding, row.data(), 1, 4, values.data());
  CHECK(values == std::vector<float>{0, -7, -32, -16});

  encoding = Code::kInt8;
  encoding.scale = DType::kBF16;
  encoding.has_zeros = true;
  row = {0x40, 0x3f, 0xff, 0x80, 0x7f};  // scale 0.75, zero -1, codes -128 and 127
  REQUIRE(row.size() == RowBytes(encoding, 2));
  DecodeRows(encoding, row.data(), 1, 2, values.data());
  CHECK(values[0] == -127 * 0.75f);
  CHECK(values[1] == 128 * 0.75f);
}

TEST_CASE("scales that rows share are counted once per 16 rows") {
  Encoding encoding(Code::kFp8);
  encoding.group = 128;
  CHECK(EncodedBytes(encoding, 256, 512) == 256 * (512 + 4 * 4));
  encoding.rows_share_scales = true;
  CHECK(EncodedBytes(encoding, 256, 512) == 256 * 512 + 16 * 4 * 4);
  CHECK(EncodingName(encoding) == "FP8 in blocks of 128");
  encoding.is_permuted = true;
  CHECK(EncodedBytes(encoding, 16, 512) == 16 * 512 + 4 * 4 + 512 * 4);
}

}  // namespace
}  // namespace stagecoach
