// Packed matrices: their layout as panels, and packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/cpu/fp8_panel.h"
#include "kernels/cpu/quant_panel.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

inline size_t PanelBytesOf(size_t cols, const Encoding& encoding) {
  const std::optional<DType> plain = PlainDType(encoding.code);
  if (plain) return PanelBytes(cols, *plain);
  return encoding.code == Code::kFp8 ? Fp8PanelBytes(cols, encoding)
                                     : QuantPanelBytes(cols, encoding);
}

// The order of a part's inputs lies before its panels.
inline size_t OrderBytes(size_t cols, const Encoding& encoding) {
  return encoding.is_permuted ? (cols * sizeof(int32_t) + 63) / 64 * 64 : 0;
}

// Iterates over the parts of a matrix. Each part consists of its own panels.
class MatrixParts {
 public:
  explicit MatrixParts(const Matrix& matrix) : matrix_(matrix) {}

  bool at_end() const { return first_row_ == static_cast<size_t>(matrix_.rows); }
  void Next() {
    offset_ += order_bytes() + PanelCount(n_rows()) * panel_bytes();
    first_row_ += n_rows();
    ++index_;
  }

  Encoding encoding() const {
    return matrix_.parts.empty() ? Encoding(CodeOf(matrix_.dtype)) : matrix_.parts[index_].encoding;
  }
  size_t first_row() const { return first_row_; }
  size_t n_rows() const {
    return static_cast<size_t>(matrix_.parts.empty() ? matrix_.rows : matrix_.parts[index_].rows);
  }
  size_t panel_bytes() const { return PanelBytesOf(static_cast<size_t>(matrix_.cols), encoding()); }
  uint8_t* panels() const { return matrix_.buffer.As<uint8_t>() + offset_ + order_bytes(); }
  // [cols], or null if the inputs have the model's order.
  int32_t* order() const {
    if (!encoding().is_permuted) return nullptr;
    return reinterpret_cast<int32_t*>(matrix_.buffer.As<uint8_t>() + offset_);
  }

 private:
  size_t order_bytes() const { return OrderBytes(static_cast<size_t>(matrix_.cols), encoding()); }

  const Matrix& matrix_;
  size_t index_ = 0, first_row_ = 0, offset_ = 0;
};

// See Ops::Keeps.
bool KeepsEncoding(const Encoding& encoding, size_t cols);

size_t PackedBytes(std::span<const MatrixPart> parts, size_t cols);

// See Ops::PackRows. source: [n_rows, matrix.cols]
void PackPanels(Matrix& matrix, size_t first_row, size_t n_rows, const void* source,
                DType source_dtype, ThreadPool& pool);
// See Ops::PackStored.
void PackStoredPanels(Matrix& matrix, size_t first_row, size_t n_rows, const void* source,
                      ThreadPool& pool);
// See Ops::PackInputOrder.
void PackOrder(Matrix& matrix, size_t first_row, std::span<const int32_t> order);
// Writes the value of each weight of row `row` of a part to out [cols].
void ReadStoredRow(const MatrixParts& part, size_t cols, size_t row, float* out);

}  // namespace stagecoach::kernels
