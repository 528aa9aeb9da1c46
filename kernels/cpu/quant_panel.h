// Packed layout of quantized integers: the codes and scales of GGUF blocks, of INT4, INT8,
// MXFP4 and NVFP4, unchanged but reordered.
//
// As in panel.h, a panel has 16 outputs. It is {the matrix's scale f32 [16], if the encoding has
// one} and a sequence of superblocks: of 32 or 256 inputs (GGUF), of 32 (NVFP4), or of a group
// (INT4, INT8, MXFP4).
//   {scale [16]} {minimum f16 [16], if the encoding has minima} {zero [16], one byte each, if the
//   encoding has zeros}
//   per 32 inputs: {codes} {sub-scales u8 [16], sub-minima u8 [16]}, or for Q6_K, which has one
//                  sub-scale per 16 inputs, {sub-scales i8 [16], those of the second half}, for
//                  IQ4_XS {sub-scales i8 [16]}, for NVFP4 {scales e4m3 [16], those of the second
//                  half}
// Scales are float16 in GGUF blocks, one byte in MXFP4, else of the encoding's dtype. In NVFP4,
// superblocks have none.
// Codes are stored in lines of 64 bytes: sixteen 32-bit lanes, one per output. The two 16-bit
// halves of a lane belong to inputs 2s and 2s + 1, so that a shift and a mask of a line give the
// pairs for a 16-bit multiply-add. A half holds as many whole codes as fit, from the low bits up.
// The remaining codes use the bits that are left:
//   4 bits  4 lines of 4 pairs
//   5 bits  5 lines of 3 pairs; bit i of pair 15 is the highest bit of line i
//   6 bits  per 8 pairs 3 lines of 2 pairs; the low 4 bits of pair 6 (7) are the highest of line 0
//           (1), and its high 2 bits are bits 12 (14) and up of line 2
//   8 bits  8 lines of 2 pairs
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/encoding/blocks.h"
#include "common/encoding/encoding.h"
#include "kernels/cpu/panel.h"

namespace stagecoach::kernels {

inline constexpr size_t kQuantBlock = 32;  // inputs whose products are summed as integers

struct QuantLayout {
  size_t prefix_bytes;      // per panel
  size_t header_bytes;      // per superblock
  size_t code_bytes;        // per 32 inputs
  size_t sub_scales_bytes;  // per 32 inputs, after their codes
  size_t super_inputs;

  constexpr size_t block_bytes() const { return code_bytes + sub_scales_bytes; }
  constexpr size_t super_bytes() const {
    return header_bytes + super_inputs / kQuantBlock * block_bytes();
  }
};

// Twice the values of e2m1 codes are integers; this is added to make all of them positive.
inline constexpr int kFp4Zero = 12;

// Whether groups may have zeros of their own.
constexpr bool MayHaveZeros(Code code) { return code == Code::kInt4 || code == Code::kInt8; }

// What the kernels must know of a code at compile time.
constexpr BlockForm QuantFormOf(Code code) {
  if (IsGgufBlock(code)) return FormOf(code);
  return {.bits = GroupedBits(code),
          .zero = IsFp4(code) ? kFp4Zero : 0,
          .elements = kQuantBlock,
          .group = code == Code::kNvFp4 ? size_t{kNvFp4Group} : kQuantBlock,
          .has_minima = false};
}

// REQUIRES: IsGgufBlock(code)
constexpr QuantLayout QuantLayoutOf(Code code) {
  const BlockForm form = FormOf(code);
  return {.prefix_bytes = 0,
          .header_bytes = kPanelRows * sizeof(uint16_t) * (form.has_minima ? 2 : 1),
          .code_bytes = kPanelRows * kQuantBlock * form.bits / 8,
          .sub_scales_bytes = form.has_sub_scales()
                                  ? kPanelRows * (form.has_minima ? 2 : kQuantBlock / form.group)
                                  : 0,
          .super_inputs = form.elements};
}

// REQUIRES: KeepsInQuantPanels(encoding, cols)
constexpr QuantLayout QuantLayoutOf(const Encoding& encoding, size_t cols) {
  if (IsGgufBlock(encoding.code)) return QuantLayoutOf(encoding.code);
  const size_t code_bytes = kPanelRows * kQuantBlock * GroupedBits(encoding.code) / 8;
  if (encoding.code == Code::kNvFp4) {
    return {.prefix_bytes = kPanelRows * sizeof(float),
            .header_bytes = 0,
            .code_bytes = code_bytes,
            .sub_scales_bytes = 2 * kPanelRows,
            .super_inputs = kQuantBlock};
  }
  return {.prefix_bytes = 0,
          .header_bytes = kPanelRows * (ScaleBytes(encoding) + (encoding.has_zeros ? 1 : 0)),
          .code_bytes = code_bytes,
          .sub_scales_bytes = 0,
          .super_inputs = GroupOf(encoding, cols)};
}

// Whether this layout can hold the encoding: superblocks are whole, and of whole blocks.
constexpr bool KeepsInQuantPanels(const Encoding& encoding, size_t cols) {
  if (IsGgufBlock(encoding.code)) return cols % FormOf(encoding.code).elements == 0;
  if (!IsGrouped(encoding.code) || encoding.code == Code::kFp8) return false;
  if (encoding.code == Code::kNvFp4) return cols % kQuantBlock == 0;
  const size_t group = GroupOf(encoding, cols);
  return group % kQuantBlock == 0 && cols % group == 0;
}

// REQUIRES, also of the functions below: KeepsInQuantPanels(encoding, cols)
constexpr size_t QuantPanelBytes(size_t cols, const Encoding& encoding) {
  const QuantLayout layout = QuantLayoutOf(encoding, cols);
  return (layout.prefix_bytes + cols / layout.super_inputs * layout.super_bytes() + 63) / 64 * 64;
}

// Packs output `row` of a panel from a row in the form of common/encoding/rows.h.
void PackQuantRow(const uint8_t* from, const Encoding& encoding, size_t cols, size_t row,
                  uint8_t* panel);

// The inverse: writes the value of each weight to out [cols].
void ReadQuantRow(const uint8_t* panel, const Encoding& encoding, size_t cols, size_t row,
                  float* out);

}  // namespace stagecoach::kernels
