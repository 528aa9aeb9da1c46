// Rows of a weight matrix in the form in which a loader hands them to a device: one row after
// another, without alignment.
//
// A row of GGUF blocks or plain elements is as in the file. A row of grouped codes is
//   {scales of all groups} {zeros of all groups, one byte each, if the encoding has them} {codes}
// In NVFP4, the matrix's scale comes first; each row repeats it. 4-bit codes fill bytes from the
// low half up. 8-bit codes and their zeros are signed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/encoding/encoding.h"

namespace stagecoach {

// REQUIRES: cols is a multiple of the block size, if the code is a GGUF block.
size_t RowBytes(const Encoding& encoding, size_t cols);

// Memory of a matrix: all codes, scales and zeros, and the order of permuted inputs.
uint64_t EncodedBytes(const Encoding& encoding, uint64_t rows, uint64_t cols);

// The parts of a row of grouped codes. Byte: uint8_t or const uint8_t.
template <typename Byte>
struct GroupedRow {
  Byte* scales;
  Byte* zeros;  // valid if the encoding has zeros
  Byte* codes;
  Byte* matrix_scale;  // float32; valid if the encoding has one
};

template <typename Byte>
GroupedRow<Byte> GroupedRowAt(const Encoding& encoding, size_t cols, Byte* row) {
  const size_t n = GroupCount(encoding, cols);
  Byte* const scales = row + MatrixScaleBytes(encoding.code);
  Byte* const zeros = scales + n * ScaleBytes(encoding);
  return {scales, zeros, zeros + (encoding.has_zeros ? n : 0), row};
}

// Writes the value of each element to out [n_rows, cols]: for GGUF blocks the result of
// gguf.quants.dequantize, for grouped codes scale * (code - zero), rounded to float32; for MXFP4
// 2^scale times the code's value; for NVFP4 the product of both scales, rounded, times the code's
// value. The order is that of the row; is_permuted has no effect.
void DecodeRows(const Encoding& encoding, const void* rows, size_t n_rows, size_t cols, float* out);

// The value of an e4m3 code. The two codes for NaN, which checkpoints do not use, give +-480.
float FloatFromFp8(uint8_t code);

}  // namespace stagecoach
