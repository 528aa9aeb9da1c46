#include "kernels/cpu/matrix_parts.h"

#include "common/check.h"
#include "kernels/cpu/elementwise.h"

namespace stagecoach::kernels {

size_t PackedBytes(std::span<const MatrixPart> parts, size_t cols) {
  size_t bytes = 0;
  for (const MatrixPart& part : parts) {
    bytes += PanelCount(static_cast<size_t>(part.rows)) * PanelBytesOf(cols, part.encoding);
  }
  return bytes;
}

void PackPanels(Matrix& matrix, size_t first_row, size_t n_rows, const void* source,
                DType source_dtype, ThreadPool& pool) {
  SC_CHECK(matrix.parts.empty() && first_row + n_rows <= static_cast<size_t>(matrix.rows));
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

void PackStoredPanels(Matrix& matrix, size_t first_row, size_t n_rows, const void* source,
                      ThreadPool& pool) {
  MatrixParts part(matrix);
  while (!part.at_end() && part.first_row() + part.n_rows() <= first_row) part.Next();
  SC_CHECK(!part.at_end() && first_row + n_rows <= part.first_row() + part.n_rows());
  const size_t cols = static_cast<size_t>(matrix.cols);
  const gguf::TensorType encoding = part.encoding();
  const gguf::BlockLayout block = *gguf::LayoutOf(encoding);
  const size_t row_bytes = cols / block.elements * block.bytes;
  const std::optional<DType> plain = gguf::PlainDType(encoding);
  RunPieces(pool, n_rows, cols, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t row = first_row - part.first_row() + i;
      uint8_t* const panel = part.panels() + row / kPanelRows * part.panel_bytes();
      const uint8_t* const from = static_cast<const uint8_t*>(source) + i * row_bytes;
      if (plain) {
        PackRow(from, *plain, panel, *plain, row % kPanelRows, cols);
      } else {
        PackQuantRow(from, encoding, cols, row % kPanelRows, panel);
      }
    }
  });
}

}  // namespace stagecoach::kernels
