// Shared by the operation tests: random quantized weights as a loader hands them over.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "common/encoding/blocks.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

inline Encoding Grouped(Code code, DType scale, int32_t group, bool has_zeros = false) {
  Encoding encoding(code);
  encoding.scale = scale;
  encoding.group = group;
  encoding.has_zeros = has_zeros;
  return encoding;
}

// FP8 with a scale per 128 x 128 block.
inline Encoding Fp8Blocks() {
  Encoding encoding = Grouped(Code::kFp8, DType::kF32, 128);
  encoding.rows_share_scales = true;
  return encoding;
}

// FP8 with a scale per matrix.
inline Encoding Fp8Tensor() {
  Encoding encoding(Code::kFp8);
  encoding.rows_share_scales = true;
  return encoding;
}

// Rows of blocks with random codes, and scales that keep the weights near 1 / sqrt(cols).
inline std::vector<uint8_t> RandomBlocks(Code type, size_t rows, size_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  const BlockForm form = FormOf(type);
  std::vector<uint8_t> bytes(rows * RowBytes(type, cols));
  const size_t step =
      IsGgufBlock(type) ? BlockBytes(type) : DTypeBytes(PlainDType(type).value_or(DType::kF32));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const float steps = static_cast<float>(form.has_table ? 256 : 1 << form.bits) *
                      (form.has_sub_scales() ? 40.0f : 1.0f);
  for (size_t i = 0; i < bytes.size(); i += step) {
    const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
    const float size = 0.5f + static_cast<float>(random() % 1000) / 1000.0f;
    const uint16_t scale =
        F16FromFloat(sign * size * 2 / (steps * std::sqrt(static_cast<float>(cols))));
    std::memcpy(bytes.data() + i + (type == Code::kQ6_K ? 208 : 0), &scale, sizeof(scale));
    if (form.has_minima) std::memcpy(bytes.data() + i + 2, &scale, sizeof(scale));
  }
  return bytes;
}

// The same for grouped codes.
inline std::vector<uint8_t> RandomGroups(const Encoding& encoding, size_t rows, size_t cols,
                                         uint32_t seed) {
  std::mt19937 random(seed);
  const size_t row_bytes = RowBytes(encoding, cols);
  std::vector<uint8_t> bytes(rows * row_bytes);
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>(random());
    // Checkpoints have no codes for NaN, which not all devices read alike.
    if (encoding.code == Code::kFp8 && (byte & 0x7f) == 0x7f) byte = 0;
  }
  if (encoding.code == Code::kMxFp4) {
    for (size_t r = 0; r < rows; ++r) {
      uint8_t* const scales = GroupedRowAt(encoding, cols, bytes.data() + r * row_bytes).scales;
      for (size_t g = 0; g < GroupCount(encoding, cols); ++g) {
        scales[g] = static_cast<uint8_t>(117 + random() % 4);
      }
    }
    return bytes;
  }
  if (encoding.code == Code::kNvFp4) {
    const float matrix_scale = 0.02f / std::sqrt(static_cast<float>(cols));
    for (size_t r = 0; r < rows; ++r) {
      const GroupedRow<uint8_t> row = GroupedRowAt(encoding, cols, bytes.data() + r * row_bytes);
      std::memcpy(row.matrix_scale, &matrix_scale, sizeof(matrix_scale));
      // From 2^-9 to 22 and, rarely, below 0.
      for (size_t g = 0; g < GroupCount(encoding, cols); ++g) {
        row.scales[g] = static_cast<uint8_t>(1 + random() % 92 + (random() % 32 == 0 ? 128 : 0));
      }
    }
    return bytes;
  }
  const float steps = encoding.code == Code::kInt4 ? 8 : encoding.code == Code::kInt8 ? 128 : 240;
  std::vector<float> scales(GroupCount(encoding, cols));
  for (size_t r = 0; r < rows; ++r) {
    const GroupedRow<uint8_t> row = GroupedRowAt(encoding, cols, bytes.data() + r * row_bytes);
    const bool is_new = !encoding.rows_share_scales || r % 16 == 0;
    for (size_t g = 0; g < scales.size(); ++g) {
      const float size = 0.5f + static_cast<float>(random() % 1000) / 1000.0f;
      if (is_new) scales[g] = size / (steps * std::sqrt(static_cast<float>(cols)));
      StoreElement(row.scales, encoding.scale, g, scales[g]);
      if (encoding.has_zeros && encoding.code == Code::kInt4) {
        row.zeros[g] = static_cast<uint8_t>(random() % 17);
      }
    }
  }
  return bytes;
}

struct StoredPart {
  MatrixPart part;
  std::vector<uint8_t> bytes;
};

inline std::vector<StoredPart> RandomParts(const std::vector<MatrixPart>& parts, int32_t cols,
                                           uint32_t seed = 7) {
  std::vector<StoredPart> out;
  for (const MatrixPart& part : parts) {
    const auto random_rows = [&](const auto& make) {
      return make(part.encoding, static_cast<size_t>(part.rows), static_cast<size_t>(cols),
                  static_cast<uint32_t>(seed + out.size()));
    };
    out.push_back({part, IsGrouped(part.encoding.code)
                             ? random_rows(RandomGroups)
                             : random_rows([](const Encoding& encoding, auto... more) {
                                 return RandomBlocks(encoding.code, more...);
                               })});
  }
  return out;
}

inline Matrix PackParts(Ops& ops, const std::vector<StoredPart>& parts, int32_t cols) {
  std::vector<MatrixPart> shapes;
  shapes.reserve(parts.size());
  for (const StoredPart& part : parts) shapes.push_back(part.part);
  Matrix matrix = *ops.NewMatrix(shapes, cols);
  int32_t row = 0;
  for (const StoredPart& part : parts) {
    // In two pieces; the second one is not aligned.
    const int32_t first = part.part.rows / 3;
    const size_t row_bytes = part.bytes.size() / static_cast<size_t>(part.part.rows);
    std::vector<uint8_t> moved(part.bytes.size() + 1);
    std::copy(part.bytes.begin(), part.bytes.end(), moved.begin() + 1);
    ops.PackStored(matrix, row, first, part.bytes.data());
    ops.PackStored(matrix, row + first, part.part.rows - first,
                   moved.data() + 1 + static_cast<size_t>(first) * row_bytes);
    if (part.part.encoding.is_permuted) {
      std::vector<int32_t> order(static_cast<size_t>(cols));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<uint32_t>(row)));
      ops.PackInputOrder(matrix, row, order);
    }
    row += part.part.rows;
  }
  return matrix;
}

}  // namespace stagecoach::kernels
