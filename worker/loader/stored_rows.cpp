#include "worker/loader/stored_rows.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/encoding/rows.h"
#include "worker/loader/interleaved_row.h"
#include "worker/loader/side_by_side.h"

namespace stagecoach::worker {
namespace {

// to: [n_rows, n_cols], from: [n_cols, from_cols], of which every step-th column from first_row on
// is used
template <typename Element>
void CopyColumns(const std::byte* from, uint64_t from_cols, uint64_t first_row, uint64_t n_rows,
                 uint64_t n_cols, uint64_t step, std::byte* to) {
  constexpr uint64_t kTile = 64;  // columns whose cache lines stay cached for the next row
  for (uint64_t tile = 0; tile < n_cols; tile += kTile) {
    const uint64_t end = std::min(tile + kTile, n_cols);
    for (uint64_t row = 0; row < n_rows; ++row) {
      for (uint64_t col = tile; col < end; ++col) {
        std::memcpy(to + (row * n_cols + col) * sizeof(Element),
                    from + (col * from_cols + first_row + row * step) * sizeof(Element),
                    sizeof(Element));
      }
    }
  }
}

// A PlacedTensor has a code that is known.
Code KnownCode(const StoredTensor& stored) { return stored.code.value_or(Code::kF32); }

}  // namespace

DType PlacedTensor::dtype() const {
  return quantized ? DType::kBF16 : PlainDType(KnownCode(*stored)).value_or(DType::kBF16);
}

std::optional<Encoding> PlacedTensor::encoding() const {
  if (quantized) return quantized->encoding();
  if (column_major || place.n_experts > 0) return std::nullopt;
  return KnownCode(*stored);
}

uint64_t PlacedTensor::row_bytes() const {
  return RowBytes(KnownCode(*stored), static_cast<size_t>(cols));
}

PlacedTensor Place(const TensorRequest& request, std::shared_ptr<const TensorFile> file,
                   const StoredTensor* stored) {
  const bool column_major = IsTurned(request, *file) != stored->column_major;
  return {.file = std::move(file),
          .stored = stored,
          .rows = request.rows,
          .cols = request.cols,
          .is_vector = request.is_vector,
          .column_major = column_major,
          .first_row = request.first_row,
          .place = request.place};
}

RowsView RowReader::Read(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows) {
  ReleaseLast();
  SC_CHECK(first_row >= 0 && n_rows >= 0 && first_row <= tensor.rows - n_rows);
  if (tensor.quantized) return Decoded(tensor, first_row, n_rows);
  if (tensor.place.n_experts > 0) return OfExpert(tensor, first_row, n_rows);
  if (tensor.column_major) return Columns(tensor, first_row, n_rows);
  if (tensor.stored->interleaved_head > 0) return Gathered(tensor, first_row, n_rows);

  const std::byte* const data = Mapped(tensor, first_row, n_rows);
  const std::optional<DType> plain = PlainDType(KnownCode(*tensor.stored));
  if (!plain) {
    copy_.resize(static_cast<size_t>(n_rows * tensor.cols));
    DecodeSideBySide(KnownCode(*tensor.stored), data, static_cast<size_t>(n_rows),
                     static_cast<size_t>(tensor.cols), copy_.data());
    return {copy_.data(), DType::kF32};
  }
  if (reinterpret_cast<uintptr_t>(data) % DTypeBytes(*plain) == 0) return {data, *plain};
  // Safetensors does not guarantee alignment.
  const uint64_t n_bytes = static_cast<uint64_t>(n_rows) * tensor.row_bytes();
  copy_.resize(n_bytes / sizeof(float) + 1);
  std::memcpy(copy_.data(), data, n_bytes);
  return {copy_.data(), *plain};
}

const std::byte* RowReader::ReadStored(const PlacedTensor& tensor, int64_t first_row,
                                       int64_t n_rows) {
  ReleaseLast();
  SC_CHECK(first_row >= 0 && n_rows >= 0 && first_row <= tensor.rows - n_rows);
  if (tensor.quantized) return Assembled(tensor, first_row, n_rows);
  SC_CHECK(!tensor.column_major && !tensor.is_vector);
  const int64_t head = tensor.stored->interleaved_head;
  if (head == 0) return Mapped(tensor, first_row, n_rows);
  const std::byte* const data = tensor.file->mapped->bytes().data() + tensor.stored->begin;
  const uint64_t row_bytes = tensor.row_bytes();
  copy_.resize(static_cast<uint64_t>(n_rows) * row_bytes / sizeof(float) + 1);
  std::byte* const copy = reinterpret_cast<std::byte*>(copy_.data());
  for (int64_t i = 0; i < n_rows; ++i) {
    const uint64_t row = static_cast<uint64_t>(InterleavedRow(first_row + i, head));
    std::memcpy(copy + static_cast<uint64_t>(i) * row_bytes, data + row * row_bytes, row_bytes);
  }
  return copy;
}

const std::byte* RowReader::Mapped(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows) {
  const uint64_t begin = tensor.stored->begin +
                         static_cast<uint64_t>(tensor.first_row + first_row) * tensor.row_bytes();
  const uint64_t n_bytes = static_cast<uint64_t>(n_rows) * tensor.row_bytes();
  SC_CHECK(begin >= tensor.stored->begin && begin + n_bytes <= tensor.stored->end);
  // Prefetches this piece and the next one, so that the disk works while this one is converted.
  tensor.file->mapped->WillNeed(begin, std::min(begin + 2 * n_bytes, tensor.stored->end));
  last_file_ = tensor.file;
  last_begin_ = begin;
  last_end_ = begin + n_bytes;
  return tensor.file->mapped->bytes().data() + begin;
}

const std::byte* RowReader::Assembled(const PlacedTensor& tensor, int64_t first_row,
                                      int64_t n_rows) {
  const size_t n = static_cast<size_t>(n_rows);
  assembled_.resize(n * RowBytes(tensor.quantized->encoding(), static_cast<size_t>(tensor.cols)));
  tensor.quantized->Rows(static_cast<size_t>(first_row), n, assembled_.data());
  if (first_row + n_rows == tensor.rows) tensor.quantized->Release();
  return reinterpret_cast<const std::byte*>(assembled_.data());
}

RowsView RowReader::Decoded(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows) {
  const size_t n = static_cast<size_t>(n_rows), cols = static_cast<size_t>(tensor.cols);
  copy_.resize(n * cols);
  DecodeSideBySide(tensor.quantized->encoding(), Assembled(tensor, first_row, n_rows), n, cols,
                   copy_.data());
  const std::span<const int32_t> order = tensor.quantized->order();
  if (!order.empty()) {
    std::vector<float> stored(cols);
    for (size_t r = 0; r < n; ++r) {
      float* const row = copy_.data() + r * cols;
      std::copy_n(row, cols, stored.begin());
      for (size_t i = 0; i < cols; ++i) row[order[i]] = stored[i];
    }
  }
  return {copy_.data(), DType::kF32};
}

RowsView RowReader::Columns(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows) {
  const DType dtype =
      PlainDType(KnownCode(*tensor.stored)).value_or(DType::kF32);  // other formats are row-major
  const uint64_t element = DTypeBytes(dtype);
  const uint64_t n_cols = static_cast<uint64_t>(tensor.cols);
  const uint64_t all_rows = static_cast<uint64_t>(tensor.rows);
  const uint64_t first = static_cast<uint64_t>(first_row), n = static_cast<uint64_t>(n_rows);
  SC_CHECK(tensor.stored->end - tensor.stored->begin == n_cols * all_rows * element);
  copy_.resize(n * n_cols * element / sizeof(float) + 1);
  const auto copy = element == 4 ? CopyColumns<uint32_t> : CopyColumns<uint16_t>;
  copy(tensor.file->mapped->bytes().data() + tensor.stored->begin, all_rows, first, n, n_cols,
       /*step=*/1, reinterpret_cast<std::byte*>(copy_.data()));
  // Each row is spread over the whole tensor, so its pages are needed until the last row is read.
  last_file_ = first + n == all_rows ? tensor.file : nullptr;
  last_begin_ = tensor.stored->begin;
  last_end_ = tensor.stored->end;
  return {copy_.data(), dtype};
}

RowsView RowReader::OfExpert(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows) {
  const DType dtype = PlainDType(KnownCode(*tensor.stored)).value_or(DType::kF32);
  const uint64_t element = DTypeBytes(dtype);
  // A vector is read as a matrix of one column.
  const uint64_t n_cols = tensor.is_vector ? 1 : static_cast<uint64_t>(tensor.cols);
  const uint64_t rows = static_cast<uint64_t>(tensor.is_vector ? tensor.cols : tensor.rows);
  const uint64_t n = tensor.is_vector ? rows : static_cast<uint64_t>(n_rows);
  const uint64_t all_rows = rows * static_cast<uint64_t>(tensor.place.n_turns);  // of one expert
  const uint64_t step = static_cast<uint64_t>(tensor.place.step());
  const uint64_t first = static_cast<uint64_t>(first_row) * step +
                         static_cast<uint64_t>(tensor.place.first_row(static_cast<int64_t>(rows)));
  const uint64_t bytes = all_rows * n_cols * element;
  const uint64_t begin = tensor.stored->begin + static_cast<uint64_t>(tensor.place.expert) * bytes;
  SC_CHECK(begin + bytes <= tensor.stored->end);
  const std::byte* const from = tensor.file->mapped->bytes().data() + begin;
  copy_.resize(n * n_cols * element / sizeof(float) + 1);
  std::byte* const to = reinterpret_cast<std::byte*>(copy_.data());
  if (tensor.column_major || n_cols == 1) {
    const auto copy = element == 4 ? CopyColumns<uint32_t> : CopyColumns<uint16_t>;
    copy(from, all_rows, first, n, n_cols, step, to);
  } else {
    const uint64_t row_bytes = n_cols * element;
    for (uint64_t r = 0; r < n; ++r) {
      std::memcpy(to + r * row_bytes, from + (first + r * step) * row_bytes, row_bytes);
    }
  }
  // The rows of the other requests share these pages, so they are needed until the last one.
  const bool is_end = first + (n - 1) * step + 1 == all_rows;
  last_file_ = is_end ? tensor.file : nullptr;
  last_begin_ = begin;
  last_end_ = begin + bytes;
  return {copy_.data(), dtype};
}

// The rows of a head are also contiguous in the file, so pages are read in roughly sequential
// order.
RowsView RowReader::Gathered(const PlacedTensor& tensor, int64_t first_row, int64_t n_rows) {
  const int64_t head = tensor.stored->interleaved_head;
  const std::byte* data = tensor.file->mapped->bytes().data() + tensor.stored->begin;
  const Encoding encoding = KnownCode(*tensor.stored);
  const size_t cols = static_cast<size_t>(tensor.cols);
  copy_.resize(static_cast<size_t>(n_rows * tensor.cols));
  if (tensor.is_vector) {
    std::vector<float> in_file_order(static_cast<size_t>(tensor.cols));
    DecodeRows(encoding, data, 1, cols, in_file_order.data());
    for (int64_t i = 0; i < tensor.cols; ++i) {
      copy_[static_cast<size_t>(i)] = in_file_order[static_cast<size_t>(InterleavedRow(i, head))];
    }
    return {copy_.data(), DType::kF32};
  }
  const uint64_t row_bytes = tensor.row_bytes();
  for (int64_t i = 0; i < n_rows; ++i) {
    const uint64_t at = static_cast<uint64_t>(InterleavedRow(first_row + i, head)) * row_bytes;
    DecodeRows(encoding, data + at, 1, cols, copy_.data() + i * tensor.cols);
  }
  return {copy_.data(), DType::kF32};
}

void RowReader::ReleaseLast() {
  if (last_file_ != nullptr) last_file_->mapped->DontNeed(last_begin_, last_end_);
  last_file_ = nullptr;
}

}  // namespace stagecoach::worker
