// Reads rows of tensors in mapped files in the layout that the model needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/loader/quantized_matrix.h"
#include "worker/loader/tensor_file.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {

// Where a requested tensor was found. Its shape matches the request.
struct PlacedTensor {
  std::shared_ptr<const TensorFile> file;
  const StoredTensor* stored = nullptr;  // in `file`; its code is known
  int64_t rows = 1, cols = 0;            // of the request
  bool is_vector = false;
  bool column_major = false;  // element (row, col) is at col * rows + row
  int64_t first_row = 0;      // of the request in `stored`; above 0 only in row-major tensors
  // Instead of file and stored, if the matrix takes several tensors.
  std::shared_ptr<const QuantizedMatrix> quantized = {};
  ExpertPlace place = {};

  // The dtype to keep the tensor in: the file's dtype, or bfloat16 if it is quantized.
  DType dtype() const;
  std::optional<Encoding> encoding() const;  // as WeightSource::encoding()
  uint64_t row_bytes() const;                // in the file, row-major; REQUIRES: !quantized
};

// REQUIRES: `stored` has the request's shape (transposed if the request is "transposed").
PlacedTensor Place(const TensorRequest& request, std::shared_ptr<const TensorFile> file,
                   const StoredTensor* stored);

// Whether the file stores a "transposed" request as [cols, rows]. GGUF's converter has already
// transposed such tensors.
inline bool IsTurned(const TensorRequest& request, const TensorFile& file) {
  return request.transposed && file.format != FileFormat::kGguf;
}

// Use from one thread at a time.
class RowReader {
 public:
  RowReader() = default;
  ~RowReader() { ReleaseLast(); }
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // As WeightSource::Rows(). `tensor` must live until the next call.
  RowsView Read(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  // As WeightSource::StoredRows(). REQUIRES: !tensor.column_major
  const std::byte* ReadStored(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);

 private:
  // Rows that are contiguous in the file, in place. Valid until the next call.
  const std::byte* Mapped(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  const std::byte* Assembled(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  RowsView Decoded(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  RowsView Columns(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  RowsView OfExpert(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  RowsView Gathered(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows);
  void ReleaseLast();

  std::shared_ptr<const TensorFile> last_file_;
  uint64_t last_begin_ = 0, last_end_ = 0;
  std::vector<float> copy_;         // rows that needed another order, alignment or encoding
  std::vector<uint8_t> assembled_;  // rows of a QuantizedMatrix
};

}  // namespace stagecoach::worker
