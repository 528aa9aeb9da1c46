#include "common/encoding/encode_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"

namespace stagecoach {
namespace {

// A group as published checkpoints have it, and the least one that a device multiplies directly.
constexpr size_t kUsualGroup = 128, kLeastGroup = 32;

// The scale takes the largest value of a group to one of these numbers. Where it is larger than the
// largest code, the largest values are clipped, and all others have finer steps.
constexpr float kInt8Reach[] = {127, 127.5F, 128};
// Beyond 8, where more values are clipped, Gemma-3-270M predicts worse although the error is
// smaller.
constexpr float kInt4Reach[] = {7, 7.25F, 7.5F, 7.75F, 8};

// To the nearest integer, the even one on a tie, for |x| < 2^22. Unlike std::nearbyint it compiles
// to vector instructions of every x86-64.
float Round(float x) {
  constexpr float kShift = 12582912;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

float Rounded(float scale, DType dtype) {
  char bytes[sizeof(float)];
  StoreElement(bytes, dtype, 0, scale);
  return LoadElement(bytes, dtype, 0);
}

// Loops over so many partial results become vector instructions: without them, each step would wait
// for the one before.
constexpr size_t kPartial = 16;

float LargestSize(const float* values, size_t n) {
  SC_CHECK(n % kPartial == 0);
  float largest[kPartial] = {};
  for (size_t i = 0; i < n; i += kPartial) {
    for (size_t p = 0; p < kPartial; ++p) {
      largest[p] = std::max(largest[p], std::abs(values[i + p]));
    }
  }
  return *std::max_element(std::begin(largest), std::end(largest));
}

struct IntRange {
  float least, most;
};

float CodeFor(float value, float inverse, IntRange range) {
  return std::clamp(Round(value * inverse), range.least, range.most);
}

float SquaredError(const float* values, size_t n, float scale, IntRange range) {
  float sums[kPartial] = {};
  const float inverse = 1 / scale;
  SC_CHECK(n % kPartial == 0);
  for (size_t i = 0; i < n; i += kPartial) {
    for (size_t p = 0; p < kPartial; ++p) {
      const float error = values[i + p] - CodeFor(values[i + p], inverse, range) * scale;
      sums[p] += error * error;
    }
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

template <size_t N>
float BestScale(const float* values, size_t n, const float (&reaches)[N], IntRange range,
                DType dtype) {
  const float largest = LargestSize(values, n);
  float best = 0, least_error = INFINITY;
  for (const float reach : reaches) {
    const float scale = Rounded(largest / reach, dtype);
    if (!(scale > 0)) continue;
    const float error = SquaredError(values, n, scale, range);
    if (error < least_error) {
      best = scale;
      least_error = error;
    }
  }
  return best;  // 0: all values are too small for a scale
}

void EncodeIntRow(const Encoding& encoding, const float* values, size_t cols, uint8_t* bytes) {
  const GroupedRow<uint8_t> row = GroupedRowAt(encoding, cols, bytes);
  const size_t group = GroupOf(encoding, cols);
  const bool is_int4 = encoding.code == Code::kInt4;
  const IntRange range = is_int4 ? IntRange{-8, 7} : IntRange{-128, 127};
  for (size_t first = 0, g = 0; first < cols; first += group, ++g) {
    const float* const in = values + first;
    const float scale = is_int4 ? BestScale(in, group, kInt4Reach, range, encoding.scale)
                                : BestScale(in, group, kInt8Reach, range, encoding.scale);
    StoreElement(row.scales, encoding.scale, g, scale);
    const float inverse = scale > 0 ? 1 / scale : 0;
    const int zero = DefaultZero(encoding.code);
    for (size_t i = 0; i < group; i += kPartial) {
      uint8_t codes[kPartial];
      for (size_t p = 0; p < kPartial; ++p) {
        codes[p] =
            static_cast<uint8_t>(static_cast<int>(CodeFor(in[i + p], inverse, range)) + zero);
      }
      if (!is_int4) {
        std::copy_n(codes, kPartial, row.codes + first + i);
        continue;
      }
      for (size_t p = 0; p < kPartial; p += 2) {
        row.codes[(first + i + p) / 2] = static_cast<uint8_t>(codes[p] | codes[p + 1] << 4);
      }
    }
  }
}

void EncodeFp8Row(const Encoding& encoding, const float* values, size_t cols, uint8_t* bytes) {
  const GroupedRow<uint8_t> row = GroupedRowAt(encoding, cols, bytes);
  const float scale = LargestSize(values, cols) / kLargestFp8;
  StoreElement(row.scales, encoding.scale, 0, scale);
  // Divides, as other writers of the format do: products with the inverse round some ties
  // elsewhere.
  const float divisor = scale > 0 ? scale : 1;
  for (size_t i = 0; i < cols; ++i) row.codes[i] = Fp8FromFloat(values[i] / divisor);
}

}  // namespace

uint8_t Fp8FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80;
  const float size = std::min(kLargestFp8, std::abs(value));  // also of NaN
  // Below the smallest normal, codes count in steps of 2^-9.
  const auto steps = static_cast<uint32_t>(static_cast<int32_t>(Round(size * 0x1p9F)));
  const uint32_t magnitude = std::bit_cast<uint32_t>(size);
  const uint32_t rounded = magnitude + 0x7ffffU + (magnitude >> 20 & 1);
  return static_cast<uint8_t>(sign | (size < 0x1p-6F ? steps : (rounded >> 20) - (120U << 3)));
}

std::optional<Encoding> EncodingFor(Code code, DType stored, size_t cols) {
  SC_CHECK(IsGrouped(code));
  if (cols % kLeastGroup != 0) return std::nullopt;
  Encoding encoding(code);
  if (code == Code::kFp8) return encoding;
  encoding.scale = stored;
  const size_t group = cols % kUsualGroup == 0 ? kUsualGroup : kLeastGroup;
  encoding.group = group == cols ? 0 : static_cast<int32_t>(group);
  return encoding;
}

void EncodeRows(const Encoding& encoding, const float* rows, size_t n_rows, size_t cols,
                uint8_t* out) {
  const auto encode = encoding.code == Code::kFp8 ? EncodeFp8Row : EncodeIntRow;
  const size_t row_bytes = RowBytes(encoding, cols);
  for (size_t r = 0; r < n_rows; ++r) encode(encoding, rows + r * cols, cols, out + r * row_bytes);
}

}  // namespace stagecoach
