// Quantizes matrices while they are read, so that no second copy of a matrix is ever in memory.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/encoding/encode_rows.h"
#include "common/encoding/rows.h"
#include "worker/loader/side_by_side.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kEncodedWorthThread = size_t{1} << 16;  // values

class QuantizingSource final : public WeightSource {
 public:
  QuantizingSource(std::unique_ptr<WeightSource> source, Code code,
                   std::span<const TensorRequest> requests)
      : source_(std::move(source)) {
    for (size_t i = 0; i < requests.size(); ++i) {
      cols_.push_back(static_cast<size_t>(requests[i].cols));
      encodings_.push_back(requests[i].is_linear
                               ? EncodingFor(code, source_->dtype(i), cols_.back())
                               : std::nullopt);
    }
  }

  DType dtype(size_t request) const override { return source_->dtype(request); }
  RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) override {
    return source_->Rows(request, first_row, n_rows);
  }

  std::optional<Encoding> encoding(size_t request) const override {
    return encodings_[request] ? encodings_[request] : source_->encoding(request);
  }

  const void* StoredRows(size_t request, int64_t first_row, int64_t n_rows) override {
    const std::optional<Encoding>& quantized = encodings_[request];
    if (!quantized) return source_->StoredRows(request, first_row, n_rows);
    const Encoding& encoding = *quantized;
    const size_t cols = cols_[request], row_bytes = RowBytes(encoding, cols);
    const RowsView view = source_->Rows(request, first_row, n_rows);
    rows_.resize(static_cast<size_t>(n_rows) * row_bytes);
    SideBySide(static_cast<size_t>(n_rows), kEncodedWorthThread / cols + 1,
               [&](size_t row, size_t end) {
                 std::vector<float> values(cols);
                 for (; row < end; ++row) {
                   const size_t at = row * cols * DTypeBytes(view.dtype);
                   DecodeRows(CodeOf(view.dtype), static_cast<const char*>(view.data) + at, 1, cols,
                              values.data());
                   EncodeRows(encoding, values.data(), 1, cols, rows_.data() + row * row_bytes);
                 }
               });
    return rows_.data();
  }

  std::span<const int32_t> InputOrder(size_t request) const override {
    return encodings_[request] ? std::span<const int32_t>() : source_->InputOrder(request);
  }

 private:
  const std::unique_ptr<WeightSource> source_;
  std::vector<size_t> cols_;
  std::vector<std::optional<Encoding>> encodings_;  // empty: as in `source_`
  std::vector<uint8_t> rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> QuantizeLinears(
    std::unique_ptr<WeightSource> source, Code code, std::span<const TensorRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::optional<Encoding> stored = source->encoding(i);
    if (!requests[i].is_linear || !stored || !IsQuantized(stored->code)) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} is quantized already ({}): serve this checkpoint without --quantize, or "
                    "quantize the model's checkpoint in bfloat16",
                    requests[i].name, EncodingName(*stored)));
  }
  return std::make_unique<QuantizingSource>(std::move(source), code, requests);
}

}  // namespace stagecoach::worker
