// How the elements of a weight matrix are encoded, whatever file they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/dtype.h"

namespace stagecoach {

enum class Code : uint8_t {
  kF32,
  kBF16,
  kF16,
  // GGUF's blocks, which hold their scales (blocks.h).
  kQ8_0,
  kQ5_0,
  kQ4_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  // Codes in groups, with scales of their own (rows.h).
  kFp8,   // e4m3: sign, 4 bits of exponent, 3 of mantissa; infinities do not exist
  kInt4,  // 0 to 15
  kInt8,  // -128 to 127
  // e2m1: sign, 2 bits of exponent, 1 of mantissa. Groups of 32 have a power of 2 as their scale.
  kMxFp4,
  // The same codes. Groups of 16 have an e4m3 number as their scale, which counts times a scale of
  // the whole matrix.
  kNvFp4,
};

inline constexpr float kLargestFp8 = 448;  // of Code::kFp8

constexpr bool IsGgufBlock(Code code) { return code >= Code::kQ8_0 && code <= Code::kIQ4_XS; }
constexpr bool IsGrouped(Code code) { return code >= Code::kFp8; }
constexpr bool IsQuantized(Code code) { return code >= Code::kQ8_0; }
// Whether codes are numbers of 4 bits with a binary point (e2m1).
constexpr bool IsFp4(Code code) { return code == Code::kMxFp4 || code == Code::kNvFp4; }

// All fields but `code` are for grouped codes.
struct Encoding {
  Code code = Code::kF32;
  DType scale = DType::kF32;  // of the scales; kFp8: always kF32; IsFp4(): unused
  bool has_zeros = false;     // each group has a code that stands for 0 (only kInt4, kInt8)
  // Only kFp8: 16 rows that begin at a multiple of 16 have the same scales.
  bool rows_share_scales = false;
  // The inputs are stored in another order than the model's, so that groups are contiguous.
  bool is_permuted = false;
  int32_t group = 0;  // consecutive inputs that share a scale; 0: all of a row

  constexpr Encoding() = default;
  // A code without options is an encoding. NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Encoding(Code c) : code(c) {}
  bool operator==(const Encoding&) const = default;
};

constexpr size_t GroupOf(const Encoding& encoding, size_t cols) {
  return encoding.group > 0 ? static_cast<size_t>(encoding.group) : cols;
}
constexpr size_t GroupCount(const Encoding& encoding, size_t cols) {
  return cols == 0 ? 0 : (cols - 1) / GroupOf(encoding, cols) + 1;
}
// Bits of a grouped code.
constexpr size_t GroupedBits(Code code) { return code == Code::kInt4 || IsFp4(code) ? 4 : 8; }
// Bytes of a group's scale. In MXFP4 it is an exponent with a bias of 127 (E8M0).
constexpr size_t ScaleBytes(const Encoding& encoding) {
  return IsFp4(encoding.code) ? 1 : DTypeBytes(encoding.scale);
}
// Bytes of the matrix's scale, a float32.
constexpr size_t MatrixScaleBytes(Code code) { return code == Code::kNvFp4 ? sizeof(float) : 0; }
// The code that stands for 0 in a group without a zero of its own.
constexpr int DefaultZero(Code code) { return code == Code::kInt4 ? 8 : 0; }

inline constexpr int32_t kMxFp4Group = 32;
constexpr Encoding MxFp4Encoding() {
  Encoding encoding(Code::kMxFp4);
  encoding.group = kMxFp4Group;
  return encoding;
}

inline constexpr int32_t kNvFp4Group = 16;
constexpr Encoding NvFp4Encoding() {
  Encoding encoding(Code::kNvFp4);
  encoding.group = kNvFp4Group;
  return encoding;
}

// The dtype of a code without scales. Empty for a quantized one.
constexpr std::optional<DType> PlainDType(Code code) {
  switch (code) {
    case Code::kF32:
      return DType::kF32;
    case Code::kBF16:
      return DType::kBF16;
    case Code::kF16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}
constexpr Code CodeOf(DType dtype) {
  if (dtype == DType::kF32) return Code::kF32;
  return dtype == DType::kBF16 ? Code::kBF16 : Code::kF16;
}

// "bfloat16", "Q4_K", "FP8 in blocks of 128", "INT4 in groups of 128 with zeros".
std::string EncodingName(const Encoding& encoding);

}  // namespace stagecoach
