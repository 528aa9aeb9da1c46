// Packed layout of FP8 weights (e4m3).
//
// As in panel.h, a panel has 16 outputs:
//   {scales f32: per group of inputs one per output, or one if the rows share it}, padded to 64
//   bytes; then lines of 64 bytes: sixteen 32-bit lanes, one per output, with 4 inputs each
// The scales are multiplied by 2^120: a shifted e4m3 code is a float that is too small by that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/encoding/encoding.h"
#include "kernels/cpu/panel.h"

namespace stagecoach::kernels {

inline constexpr size_t kFp8Line = 4;  // inputs
inline constexpr size_t kFp8LineBytes = kFp8Line * kPanelRows;

constexpr bool KeepsInFp8Panels(const Encoding& encoding, size_t cols) {
  return encoding.code == Code::kFp8 && !encoding.is_permuted &&
         (GroupCount(encoding, cols) == 1 || GroupOf(encoding, cols) % kFp8Line == 0);
}

constexpr size_t Fp8ScaleBytes(size_t cols, const Encoding& encoding) {
  const size_t n = GroupCount(encoding, cols) * (encoding.rows_share_scales ? 1 : kPanelRows);
  return (n * sizeof(float) + 63) / 64 * 64;
}

constexpr size_t Fp8PanelBytes(size_t cols, const Encoding& encoding) {
  return Fp8ScaleBytes(cols, encoding) + (cols + kFp8Line - 1) / kFp8Line * kFp8LineBytes;
}

// Packs output `row` of a panel from a row in the form of common/encoding/rows.h.
void PackFp8Row(const uint8_t* from, const Encoding& encoding, size_t cols, size_t row,
                uint8_t* panel);

// The inverse: writes the value of each weight to out [cols].
void ReadFp8Row(const uint8_t* panel, const Encoding& encoding, size_t cols, size_t row,
                float* out);

}  // namespace stagecoach::kernels
