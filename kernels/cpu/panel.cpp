#include "kernels/cpu/panel.h"

#include <cstring>

#include "common/check.h"
#include "common/float_convert.h"
#include "kernels/cpu/elementwise.h"

namespace stagecoach::kernels {
namespace {

// Both sides hold the same 2- or 4-byte type. source: [cols], not aligned
template <typename Element>
void CopyRow(const uint8_t* source, uint8_t* panel, DType dtype, size_t row, size_t cols) {
  for (size_t col = 0; col < cols; ++col) {
    std::memcpy(panel + PanelIndex(dtype, row, col) * sizeof(Element),
                source + col * sizeof(Element), sizeof(Element));
  }
}

// Output `row` of `panel` from source: [cols].
void PackRow(const uint8_t* source, DType source_dtype, uint8_t* panel, DType dtype, size_t row,
             size_t cols) {
  if (source_dtype != dtype) {
    for (size_t col = 0; col < cols; ++col) {
      StoreElement(panel, dtype, PanelIndex(dtype, row, col),
                   LoadElement(source, source_dtype, col));
    }
  } else if (dtype == DType::kF32) {
    CopyRow<float>(source, panel, dtype, row, cols);
  } else {
    CopyRow<uint16_t>(source, panel, dtype, row, cols);
  }
}

}  // namespace

void PackPanels(Matrix& matrix, size_t first_row, size_t n_rows, const void* source,
                DType source_dtype, ThreadPool& pool) {
  SC_CHECK(first_row + n_rows <= static_cast<size_t>(matrix.rows));
  const size_t cols = static_cast<size_t>(matrix.cols);
  const size_t panel_bytes = PanelBytes(cols, matrix.dtype);
  RunPieces(pool, n_rows, cols, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      uint8_t* const panel =
          matrix.buffer.As<uint8_t>() + (first_row + i) / kPanelRows * panel_bytes;
      PackRow(static_cast<const uint8_t*>(source) + i * cols * DTypeBytes(source_dtype),
              source_dtype, panel, matrix.dtype, (first_row + i) % kPanelRows, cols);
    }
  });
}

}  // namespace stagecoach::kernels
