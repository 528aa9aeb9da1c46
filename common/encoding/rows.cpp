#include "common/encoding/rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/check.h"
#include "common/encoding/blocks.h"
#include "common/float_convert.h"

namespace stagecoach {
namespace {

void DecodeBlocks(Code code, const uint8_t* blocks, size_t n, float* out) {
  const BlockForm form = FormOf(code);
  const size_t bytes = BlockBytes(code);
  SC_CHECK(n % form.elements == 0);
  BlockCodes codes;
  for (size_t i = 0; i < n; i += form.elements, blocks += bytes) {
    UnpackBlock(code, blocks, &codes);
    BlockValues(form, codes, out + i);
  }
}

const std::array<float, 256>& Fp8Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all;
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      const float size = exponent == 0
                             ? std::ldexp(static_cast<float>(mantissa), -9)
                             : std::ldexp(static_cast<float>(mantissa + 8), exponent - 10);
      all[static_cast<size_t>(code)] = code >= 128 ? -size : size;
    }
    return all;
  }();
  return values;
}

// The values of e2m1 codes without a sign.
constexpr std::array<float, 8> kFp4Sizes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// The value of each code at each scale. A device that expands experts needs 10^10 of them.
using MxFp4Values = std::array<std::array<float, 16>, 256>;
const MxFp4Values& AllMxFp4Values() {
  static const MxFp4Values values = [] {
    MxFp4Values all;
    for (int scale = 0; scale < 256; ++scale) {
      for (size_t code = 0; code < 8; ++code) {
        const float size = std::ldexp(kFp4Sizes[code], scale - 127);
        all[static_cast<size_t>(scale)][code] = size;
        all[static_cast<size_t>(scale)][code + 8] = -size;
      }
    }
    return all;
  }();
  return values;
}

void DecodeMxFp4(const Encoding& encoding, const uint8_t* bytes, size_t cols, float* out) {
  const MxFp4Values& values = AllMxFp4Values();
  const GroupedRow<const uint8_t> row = GroupedRowAt(encoding, cols, bytes);
  const size_t group = GroupOf(encoding, cols);
  for (size_t first = 0, g = 0; first < cols; first += group, ++g) {
    const std::array<float, 16>& of_scale = values[row.scales[g]];
    for (size_t i = first; i < std::min(first + group, cols); ++i) {
      out[i] = of_scale[row.codes[i / 2] >> (i % 2 * 4) & 15];
    }
  }
}

void DecodeNvFp4(const Encoding& encoding, const uint8_t* bytes, size_t cols, float* out) {
  const GroupedRow<const uint8_t> row = GroupedRowAt(encoding, cols, bytes);
  const size_t group = GroupOf(encoding, cols);
  const float matrix_scale = LoadElement(row.matrix_scale, DType::kF32, 0);
  for (size_t first = 0, g = 0; first < cols; first += group, ++g) {
    const float scale = matrix_scale * FloatFromFp8(row.scales[g]);
    for (size_t i = first; i < std::min(first + group, cols); ++i) {
      const int code = row.codes[i / 2] >> (i % 2 * 4) & 15;
      const float value = scale * kFp4Sizes[static_cast<size_t>(code & 7)];
      out[i] = code >= 8 ? -value : value;
    }
  }
}

void DecodeGroups(const Encoding& encoding, const uint8_t* bytes, size_t cols, float* out) {
  const GroupedRow<const uint8_t> row = GroupedRowAt(encoding, cols, bytes);
  const size_t group = GroupOf(encoding, cols);
  const bool is_int4 = encoding.code == Code::kInt4;
  for (size_t first = 0, g = 0; first < cols; first += group, ++g) {
    const float scale = LoadElement(row.scales, encoding.scale, g);
    int zero = DefaultZero(encoding.code);
    if (encoding.has_zeros) zero = is_int4 ? row.zeros[g] : static_cast<int8_t>(row.zeros[g]);
    for (size_t i = first; i < std::min(first + group, cols); ++i) {
      if (encoding.code == Code::kFp8) {
        out[i] = FloatFromFp8(row.codes[i]) * scale;
        continue;
      }
      const int code =
          is_int4 ? row.codes[i / 2] >> (i % 2 * 4) & 15 : static_cast<int8_t>(row.codes[i]);
      out[i] = scale * static_cast<float>(code - zero);
    }
  }
}

}  // namespace

float FloatFromFp8(uint8_t code) { return Fp8Values()[code]; }

size_t RowBytes(const Encoding& encoding, size_t cols) {
  if (const std::optional<DType> plain = PlainDType(encoding.code)) {
    return cols * DTypeBytes(*plain);
  }
  if (IsGgufBlock(encoding.code)) {
    return cols / FormOf(encoding.code).elements * BlockBytes(encoding.code);
  }
  const size_t group_bytes = ScaleBytes(encoding) + (encoding.has_zeros ? 1 : 0);
  return MatrixScaleBytes(encoding.code) + GroupCount(encoding, cols) * group_bytes +
         (cols * GroupedBits(encoding.code) + 7) / 8;
}

uint64_t EncodedBytes(const Encoding& encoding, uint64_t rows, uint64_t cols) {
  const uint64_t matrix_scale_bytes = MatrixScaleBytes(encoding.code);
  uint64_t bytes = matrix_scale_bytes + rows * (RowBytes(encoding, cols) - matrix_scale_bytes);
  if (encoding.rows_share_scales) {
    const uint64_t scale_bytes = GroupCount(encoding, cols) * ScaleBytes(encoding);
    bytes -= (rows - (rows + 15) / 16) * scale_bytes;
  }
  return bytes + (encoding.is_permuted ? cols * sizeof(int32_t) : 0);
}

void DecodeRows(const Encoding& encoding, const void* rows, size_t n_rows, size_t cols,
                float* out) {
  const uint8_t* const bytes = static_cast<const uint8_t*>(rows);
  if (const std::optional<DType> plain = PlainDType(encoding.code)) {
    for (size_t i = 0; i < n_rows * cols; ++i) out[i] = LoadElement(bytes, *plain, i);
  } else if (IsGgufBlock(encoding.code)) {
    DecodeBlocks(encoding.code, bytes, n_rows * cols, out);
  } else {
    const size_t row_bytes = RowBytes(encoding, cols);
    const auto decode = encoding.code == Code::kMxFp4   ? DecodeMxFp4
                        : encoding.code == Code::kNvFp4 ? DecodeNvFp4
                                                        : DecodeGroups;
    for (size_t r = 0; r < n_rows; ++r) {
      decode(encoding, bytes + r * row_bytes, cols, out + r * cols);
    }
  }
}

}  // namespace stagecoach
