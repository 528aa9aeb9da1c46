// Packed matrices: their layout as panels, and packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/cpu/quant_panel.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

inline size_t PanelBytesOf(size_t cols, gguf::TensorType encoding) {
  const std::optional<DType> plain = gguf::PlainDType(encoding);
  return plain ? PanelBytes(cols, *plain) : QuantPanelBytes(cols, encoding);
}

// Iterates over the parts of a matrix. Each part consists of its own panels.
class MatrixParts {
 public:
  explicit MatrixParts(const Matrix& matrix) : matrix_(matrix) {}

  bool at_end() const { return first_row_ == static_cast<size_t>(matrix_.rows); }
  void Next() {
    offset_ += PanelCount(n_rows()) * panel_bytes();
    first_row_ += n_rows();
    ++index_;
  }

  gguf::TensorType encoding() const {
    return matrix_.parts.empty() ? gguf::TypeOf(matrix_.dtype) : matrix_.parts[index_].encoding;
  }
  size_t first_row() const { return first_row_; }
  size_t n_rows() const {
    return static_cast<size_t>(matrix_.parts.empty() ? matrix_.rows : matrix_.parts[index_].rows);
  }
  size_t panel_bytes() const { return PanelBytesOf(static_cast<size_t>(matrix_.cols), encoding()); }
  uint8_t* panels() const { return matrix_.buffer.As<uint8_t>() + offset_; }

 private:
  const Matrix& matrix_;
  size_t index_ = 0, first_row_ = 0, offset_ = 0;
};

size_t PackedBytes(std::span<const MatrixPart> parts, size_t cols);

// See Ops::PackRows. source: [n_rows, matrix.cols]
void PackPanels(Matrix& matrix, size_t first_row, size_t n_rows, const void* source,
                DType source_dtype, ThreadPool& pool);
// See Ops::PackStored.
void PackStoredPanels(Matrix& matrix, size_t first_row, size_t n_rows, const void* source,
                      ThreadPool& pool);

}  // namespace stagecoach::kernels
