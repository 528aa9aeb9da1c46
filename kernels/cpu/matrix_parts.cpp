#include "kernels/cpu/matrix_parts.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "kernels/cpu/elementwise.h"

namespace stagecoach::kernels {

namespace {

MatrixParts PartWith(const Matrix& matrix, size_t row) {
  MatrixParts part(matrix);
  while (!part.at_end() && part.first_row() + part.n_rows() <= row) part.Next();
  return part;
}

}  // namespace

bool KeepsEncoding(const Encoding& encoding, size_t cols) {
  if (PlainDType(encoding.code)) return true;
  return encoding.code == Code::kFp8 ? KeepsInFp8Panels(encoding, cols)
                                     : KeepsInQuantPanels(encoding, cols);
}

size_t PackedBytes(std::span<const MatrixPart> parts, size_t cols) {
  size_t bytes = 0;
  for (const MatrixPart& part : parts) {
    bytes += OrderBytes(cols, part.encoding) +
             PanelCount(static_cast<size_t>(part.rows)) * PanelBytesOf(cols, part.encoding);
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
  const MatrixParts part = PartWith(matrix, first_row);
  SC_CHECK(!part.at_end() && first_row + n_rows <= part.first_row() + part.n_rows());
  const size_t cols = static_cast<size_t>(matrix.cols);
  const Encoding encoding = part.encoding();
  const size_t row_bytes = RowBytes(encoding, cols);
  const std::optional<DType> plain = PlainDType(encoding.code);
  RunPieces(pool, n_rows, cols, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t row = first_row - part.first_row() + i;
      uint8_t* const panel = part.panels() + row / kPanelRows * part.panel_bytes();
      const uint8_t* const from = static_cast<const uint8_t*>(source) + i * row_bytes;
      if (plain) {
        PackRow(from, *plain, panel, *plain, row % kPanelRows, cols);
      } else if (encoding.code == Code::kFp8) {
        PackFp8Row(from, encoding, cols, row % kPanelRows, panel);
      } else {
        PackQuantRow(from, encoding, cols, row % kPanelRows, panel);
      }
    }
  });
}

void PackOrder(Matrix& matrix, size_t first_row, std::span<const int32_t> order) {
  const MatrixParts part = PartWith(matrix, first_row);
  SC_CHECK(part.order() != nullptr && order.size() == static_cast<size_t>(matrix.cols));
  std::copy(order.begin(), order.end(), part.order());
}

void ReadStoredRow(const MatrixParts& part, size_t cols, size_t row, float* out) {
  const Encoding encoding = part.encoding();
  const uint8_t* const panel = part.panels() + row / kPanelRows * part.panel_bytes();
  const size_t within = row % kPanelRows;
  if (const std::optional<DType> plain = PlainDType(encoding.code)) {
    for (size_t col = 0; col < cols; ++col) {
      out[col] = LoadElement(panel, *plain, PanelIndex(*plain, within, col));
    }
    return;
  }
  if (encoding.code == Code::kFp8) {
    ReadFp8Row(panel, encoding, cols, within, out);
  } else {
    ReadQuantRow(panel, encoding, cols, within, out);
  }
  if (part.order() == nullptr) return;
  const std::vector<float> packed(out, out + cols);
  for (size_t i = 0; i < cols; ++i) out[part.order()[i]] = packed[i];
}

}  // namespace stagecoach::kernels
