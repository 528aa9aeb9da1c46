// Rows of tensors in mapped files, as the model wants them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/loader/tensor_file.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

// Where a requested tensor was found; it has the request's shape.
struct PlacedTensor {
  std::shared_ptr<const TensorFile> file;
  const StoredTensor* stored = nullptr;  // of `file`; its encoding is known
  int64_t rows = 1, cols = 0;            // of the request
  bool is_vector = false;
  bool column_major = false;  // element (row, col) lies at col * rows + row

  // The dtype in which it is best kept: that of the file, bfloat16 for quantized ones.
  DType dtype() const;
  uint64_t row_bytes() const;  // in the file, row-major
};

// REQUIRES: `stored` has the request's shape (transposed where the request says so).
PlacedTensor Place(const TensorRequest& request, std::shared_ptr<const TensorFile> file,
                   const StoredTensor* stored);

// Whether the file has [cols, rows] for a request that says "transposed": GGUF's converter has
// turned them round.
inline bool IsTurned(const TensorRequest& request, const TensorFile& file) {
  return request.transposed && file.format != FileFormat::kGguf;
}

// One thread at a time.
class RowReader {
 public:
  RowReader() = default;
  ~RowReader() { ReleaseLast(); }
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // As WeightSource::Rows(); `tensor` must live until the next call.
  RowsView Read(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  // As WeightSource::StoredRows(). REQUIRES: !tensor.column_major
  const std::byte* ReadStored(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);

 private:
  // Rows that lie side by side in the file, in place, until the next call.
  const std::byte* Mapped(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  RowsView Columns(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  RowsView Gathered(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  void ReleaseLast();

  std::shared_ptr<const TensorFile> last_file_;
  uint64_t last_begin_ = 0, last_end_ = 0;
  std::vector<float> copy_;  // of rows that lie in another place, alignment or encoding
};

}  // namespace stagecoach::worker
