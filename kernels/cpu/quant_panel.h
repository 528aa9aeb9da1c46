// Packed layout of quantized weights: the codes and scales of GGUF blocks, unchanged but reordered.
//
// As in panel.h, a panel has 16 outputs. It is a sequence of superblocks of 32 or 256 inputs:
//   {scale f16 [16]} {minimum f16 [16], if the encoding has minima}
//   per 32 inputs: {codes} {sub-scales u8 [16], sub-minima u8 [16]}, or for Q6_K, which has one
//                  sub-scale per 16 inputs, {sub-scales i8 [16], those of the second half}
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

#include "common/gguf/blocks.h"
#include "kernels/cpu/panel.h"

namespace stagecoach::kernels {

inline constexpr size_t kQuantBlock = 32;  // inputs whose products are summed as integers

struct QuantLayout {
  size_t header_bytes;      // per superblock
  size_t code_bytes;        // per 32 inputs
  size_t sub_scales_bytes;  // per 32 inputs, after their codes
  size_t super_inputs;

  constexpr size_t block_bytes() const { return code_bytes + sub_scales_bytes; }
  constexpr size_t super_bytes() const {
    return header_bytes + super_inputs / kQuantBlock * block_bytes();
  }
};

// REQUIRES: gguf::IsQuantized(encoding)
constexpr QuantLayout QuantLayoutOf(gguf::TensorType encoding) {
  const gguf::BlockForm form = gguf::FormOf(encoding);
  return {.header_bytes = kPanelRows * sizeof(uint16_t) * (form.has_minima ? 2 : 1),
          .code_bytes = kPanelRows * kQuantBlock * form.bits / 8,
          .sub_scales_bytes = form.has_sub_scales() ? 2 * kPanelRows : 0,
          .super_inputs = form.elements};
}

// REQUIRES: cols is a multiple of the encoding's block size.
constexpr size_t QuantPanelBytes(size_t cols, gguf::TensorType encoding) {
  const QuantLayout layout = QuantLayoutOf(encoding);
  return (cols / layout.super_inputs * layout.super_bytes() + 63) / 64 * 64;
}

// Packs output `row` of a panel from a row of GGUF blocks.
void PackQuantRow(const uint8_t* blocks, gguf::TensorType encoding, size_t cols, size_t row,
                  uint8_t* panel);

// The inverse: writes the value of each weight to out [cols].
void ReadQuantRow(const uint8_t* panel, gguf::TensorType encoding, size_t cols, size_t row,
                  float* out);

}  // namespace stagecoach::kernels
