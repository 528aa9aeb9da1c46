// Brings the rows of heads into the model's order while they are read.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/encoding/rows.h"
#include "worker/loader/interleaved_row.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

class HeadOrderSource final : public WeightSource {
 public:
  HeadOrderSource(std::unique_ptr<WeightSource> source, std::span<const TensorRequest> requests)
      : source_(std::move(source)) {
    for (const TensorRequest& request : requests) {
      requests_.push_back({.rows = request.rows,
                           .cols = request.cols,
                           .head = request.interleaved_head,
                           .is_vector = request.is_vector});
    }
  }

  DType dtype(size_t request) const override { return source_->dtype(request); }
  std::optional<Encoding> encoding(size_t request) const override {
    return source_->encoding(request);
  }
  std::span<const int32_t> InputOrder(size_t request) const override {
    return source_->InputOrder(request);
  }

  RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) override {
    const Shape& shape = requests_[request];
    if (shape.head == 0) return source_->Rows(request, first_row, n_rows);
    if (shape.is_vector) {
      // Its elements are the rows of heads.
      const RowsView view = source_->Rows(request, 0, 1);
      return {Reordered(view.data, DTypeBytes(view.dtype), 0, {0, shape.cols}, shape.head),
              view.dtype};
    }
    const Range heads = WholeHeads(shape, first_row, n_rows);
    const RowsView view = source_->Rows(request, heads.begin, heads.end - heads.begin);
    const size_t row_bytes = static_cast<size_t>(shape.cols) * DTypeBytes(view.dtype);
    return {
        Reordered(view.data, row_bytes, heads.begin, {first_row, first_row + n_rows}, shape.head),
        view.dtype};
  }

  const void* StoredRows(size_t request, int64_t first_row, int64_t n_rows) override {
    const Shape& shape = requests_[request];
    if (shape.head == 0) return source_->StoredRows(request, first_row, n_rows);
    const Range heads = WholeHeads(shape, first_row, n_rows);
    const void* const stored = source_->StoredRows(request, heads.begin, heads.end - heads.begin);
    const size_t row_bytes = RowBytes(*source_->encoding(request), static_cast<size_t>(shape.cols));
    return Reordered(stored, row_bytes, heads.begin, {first_row, first_row + n_rows}, shape.head);
  }

 private:
  struct Shape {
    int64_t rows, cols;
    int64_t head;  // 0: the rows stay as they are
    bool is_vector;
  };
  struct Range {
    int64_t begin, end;
  };

  // The rows of all heads that have one of the rows.
  static Range WholeHeads(const Shape& shape, int64_t first_row, int64_t n_rows) {
    SC_CHECK(shape.rows % shape.head == 0);
    const int64_t end = (first_row + n_rows + shape.head - 1) / shape.head * shape.head;
    return {first_row / shape.head * shape.head, end};
  }

  // from: rows of whole heads from row `first` on. Valid until the next call.
  const void* Reordered(const void* from, size_t row_bytes, int64_t first, Range rows,
                        int64_t head) {
    rows_.resize(static_cast<size_t>(rows.end - rows.begin) * row_bytes);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto at = static_cast<size_t>(InterleavedRow(row, head) - first);
      std::memcpy(rows_.data() + static_cast<size_t>(row - rows.begin) * row_bytes,
                  static_cast<const std::byte*>(from) + at * row_bytes, row_bytes);
    }
    return rows_.data();
  }

  const std::unique_ptr<WeightSource> source_;
  std::vector<Shape> requests_;
  std::vector<std::byte> rows_;
};

}  // namespace

std::unique_ptr<WeightSource> ReorderHeads(std::unique_ptr<WeightSource> source,
                                           std::span<const TensorRequest> requests) {
  const bool has_some = std::any_of(requests.begin(), requests.end(), [](const auto& request) {
    return request.interleaved_head > 0;
  });
  if (!has_some) return source;
  return std::make_unique<HeadOrderSource>(std::move(source), requests);
}

}  // namespace stagecoach::worker
