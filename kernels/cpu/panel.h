// Packed layout of weights, and of the KV cache within a block.
//
// A panel has 16 outputs and `cols` inputs, stored input after input. So every output sums its
// products in input order for any vector size: 4, 8 or 16 lanes. bfloat16 stores each even input
// and the next one of an output side by side: a 32-bit lane then yields both as float, one by a
// shift, the other by a mask.
//   float32, float16: [cols, 16]        bfloat16: [ceil(cols / 2), 16, 2]
// Panels start at multiples of 64 bytes. Padding outside the matrix is zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace stagecoach::kernels {

inline constexpr size_t kPanelRows = 16;

constexpr size_t PanelBytes(size_t cols, DType dtype) {
  const size_t inputs = dtype == DType::kBF16 ? (cols + 1) / 2 * 2 : cols;
  return (inputs * kPanelRows * DTypeBytes(dtype) + 63) / 64 * 64;
}

constexpr size_t PanelCount(size_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

// Index of output `row` and input `col` in a panel with `width` outputs.
constexpr size_t PanelIndex(DType dtype, size_t row, size_t col, size_t width = kPanelRows) {
  return dtype == DType::kBF16 ? col / 2 * width * 2 + row * 2 + col % 2 : col * width + row;
}

// Packs output `row` of a panel from source [cols], which needs no alignment.
void PackRow(const uint8_t* source, DType source_dtype, uint8_t* panel, DType dtype, size_t row,
             size_t cols);

}  // namespace stagecoach::kernels
