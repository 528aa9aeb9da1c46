// The layout of quantized matrices on a GPU. Codes, scales, zeros and minima are those of the
// checkpoint; only their order differs, and K-quants' six-bit scales take a byte each.
//
// A part of a matrix is a sequence of tiles of 16 outputs. A tile is a sequence of blocks of 256
// inputs, the last one shorter: {header} {unit of 64 inputs} * 4. A unit is two chunks of 32
// inputs.
//
// Codes. The lane with g = lane / 4 and c = lane % 4 holds those that it multiplies in
// mma.m16n8k16 (device/mma.h): of outputs g and g + 8, inputs 8c to 8c + 7 of each chunk (Q6_K
// and NVFP4: 4c to 4c + 3, and 16 more than those). So a warp reads a unit in loads of 16 bytes per
// lane.
//   4 bits and less of a code: [lane] {chunk 0: output g, output g + 8; chunk 1: the same}, a word
//     of 8 codes each. Code e is at bit 16 * (e % 2) + 4 * (e / 2), as pairs of 16-bit values are.
//   The fifth bit: [lane] a word. Byte e % 2 * 2 + (output g + 8: 1) has code e of chunk j at bit
//     4 * j + e / 2.
//   Bits 5 and 6: [lane][chunk] a word. The same byte has code e at bit 2 * (e / 2).
//   8 bits: [chunk][lane] {output g, output g + 8}, 8 bytes each; for FP8 see Fp8Word().
// Header. Plain scales: {scales [16][groups of the block]} {zeros [16][groups], bytes}. Scales that
// 16 rows share are there once. A group of more than 256 inputs repeats its scale in each block.
//   Q4_K, Q5_K: {scale f16, minimum f16} [16], {8 scales, 8 minima} [16], bytes.
//   Q6_K: {scale f16} [16], {16 scales, biased by 128} [16], bytes.
//   MXFP4: {8 scales} [16], exponents.
//   IQ4_XS: {scale f16} [16], {8 scales, biased by 128} [16], bytes.
//   NVFP4: {the matrix's scale f32, 12 bytes of nothing}, {16 scales e4m3} [16]. A tile has rows of
//     one matrix only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/encoding/encoding.h"

namespace stagecoach::kernels::cuda {

enum class PackedForm : uint8_t {
  kInt4,
  kInt5,
  kInt8,
  kFp8,
  kMxFp4,
  kIQ4NL,
  kQ4K,
  kQ5K,
  kIQ4XS,
  kQ6K,
  kNvFp4
};

inline constexpr int kTileRows = 16;
inline constexpr int kChunkCols = 32;
inline constexpr int kUnitCols = 2 * kChunkCols;
inline constexpr int kBlockUnits = 4;
inline constexpr int kBlockChunks = 2 * kBlockUnits;
inline constexpr int kBlockCols = kBlockUnits * kUnitCols;
inline constexpr int kMostHeaderBytes = 640;  // 8 groups of 16 float32 scales and zeros

constexpr bool Is8Bit(PackedForm form) {
  return form == PackedForm::kInt8 || form == PackedForm::kFp8;
}
constexpr bool HasMinima(PackedForm form) {
  return form == PackedForm::kQ4K || form == PackedForm::kQ5K;
}
constexpr bool HasSubScales(PackedForm form) { return form >= PackedForm::kQ4K; }
// Whether each half of a chunk has a scale of its own.
constexpr bool HasHalfScales(PackedForm form) { return form >= PackedForm::kQ6K; }
// Whether codes are places in kIQ4Values.
constexpr bool IsIQ4(PackedForm form) {
  return form == PackedForm::kIQ4NL || form == PackedForm::kIQ4XS;
}
constexpr bool IsFp4(PackedForm form) {
  return form == PackedForm::kMxFp4 || form == PackedForm::kNvFp4;
}
constexpr bool HasFifthBit(PackedForm form) {
  return form == PackedForm::kInt5 || form == PackedForm::kQ5K;
}
constexpr int UnitBytes(PackedForm form) {
  return Is8Bit(form) ? 1024 : form == PackedForm::kQ6K ? 768 : HasFifthBit(form) ? 640 : 512;
}

enum class ScaleKind : uint8_t { kF16, kBF16, kF32, kE8M0 };

// A part as kernels see it.
struct PackedPart {
  unsigned char* tiles;
  const int32_t* order;  // [cols]: the product's input of each stored one; null: the same
  int32_t rows, cols;    // cols: a multiple of 32
  int32_t n_units;       // per tile
  int32_t header_bytes;
  int32_t group_shift;  // 2^group_shift chunks of a block have the same scale; at most 3
  // Only for plain scales.
  int32_t row_stride;  // bytes from a row's scales to the next one's; 0: the same
  int32_t zeros_at;    // in the header; 0: none
  ScaleKind scale_kind;
  PackedForm form;

  constexpr int32_t n_blocks() const { return (n_units + kBlockUnits - 1) / kBlockUnits; }
  constexpr int32_t n_tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  constexpr int32_t block_bytes() const { return header_bytes + kBlockUnits * UnitBytes(form); }
  constexpr int64_t tile_bytes() const {
    return int64_t{n_units} * UnitBytes(form) + int64_t{n_blocks()} * header_bytes;
  }
};

// The part without its addresses. REQUIRES: GpusKeep
PackedPart PackedPartOf(const Encoding& encoding, int32_t rows, int32_t cols);

}  // namespace stagecoach::kernels::cuda
