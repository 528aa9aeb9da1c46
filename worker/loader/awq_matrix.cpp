// AWQ's layout (AutoAWQ, version "gemm"), 4 bits. Everything is stored by input or group first:
//   qweight I32 [cols, rows / 8], qzeros I32 [groups, rows / 8]: a word has 8 consecutive rows
//   scales [groups, rows]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/encoding/rows.h"
#include "worker/loader/quantized_matrix.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kPerWord = 8;
// The bit at which a word has the code of each of its rows.
constexpr std::array<int, kPerWord> kShifts = {0, 16, 4, 20, 8, 24, 12, 28};

class AwqMatrix final : public QuantizedMatrix {
 public:
  AwqMatrix(const LayerTensors& tensors, MappedTensor weight, MappedTensor zeros,
            MappedTensor scales)
      : rows_(tensors.rows),
        cols_(tensors.cols),
        weight_(std::move(weight)),
        zeros_(std::move(zeros)),
        scales_(std::move(scales)) {
    encoding_ = Code::kInt4;
    encoding_.scale = scales_.dtype();
    encoding_.has_zeros = true;
    encoding_.group = tensors.quantization.group_size;
    if (GroupCount(encoding_, cols_) == 1) encoding_.group = 0;
  }

  void Rows(size_t first_row, size_t n_rows, uint8_t* to) const override {
    constexpr size_t kTile = 64;  // rows whose cache lines stay cached for the next input
    const size_t row_bytes = RowBytes(encoding_, cols_);
    for (size_t tile = 0; tile < n_rows; tile += kTile) {
      const size_t end = std::min(tile + kTile, n_rows);
      for (size_t r = tile; r < end; ++r) {
        const GroupedRow<uint8_t> row = GroupedRowAt(encoding_, cols_, to + r * row_bytes);
        std::memset(row.codes, 0, (cols_ + 1) / 2);
        ScalesAndZeros(first_row + r, row);
      }
      for (size_t col = 0; col < cols_; ++col) {
        for (size_t r = tile; r < end; ++r) {
          uint8_t* const codes = GroupedRowAt(encoding_, cols_, to + r * row_bytes).codes;
          codes[col / 2] |=
              static_cast<uint8_t>(Code4(weight_, col, first_row + r) << (col % 2 * 4));
        }
      }
    }
  }

 private:
  // The code of `row` in line `line` of qweight or qzeros.
  uint32_t Code4(const MappedTensor& tensor, size_t line, size_t row) const {
    uint32_t word;
    std::memcpy(&word, tensor.data() + (line * (rows_ / kPerWord) + row / kPerWord) * 4, 4);
    return word >> kShifts[row % kPerWord] & 15;
  }

  void ScalesAndZeros(size_t row, const GroupedRow<uint8_t>& to) const {
    const size_t scale_bytes = DTypeBytes(encoding_.scale);
    for (size_t g = 0; g < GroupCount(encoding_, cols_); ++g) {
      std::memcpy(to.scales + g * scale_bytes, scales_.data() + (g * rows_ + row) * scale_bytes,
                  scale_bytes);
      to.zeros[g] = static_cast<uint8_t>(Code4(zeros_, g, row));
    }
  }

  const size_t rows_, cols_;
  const MappedTensor weight_, zeros_, scales_;
};

}  // namespace

std::unique_ptr<QuantizedMatrix> OpenAwqMatrix(LayerTensors& tensors) {
  const size_t rows = tensors.rows, cols = tensors.cols;
  if (rows % kPerWord != 0) {
    tensors.Problem("qweight", fmt::format("has {} rows, not a multiple of 8", rows));
    return nullptr;
  }
  const size_t group = tensors.quantization.group_size > 0
                           ? static_cast<size_t>(tensors.quantization.group_size)
                           : cols;
  const size_t n_groups = (cols - 1) / group + 1;
  auto weight = tensors.Need("qweight", {"I32"}, {cols, rows / kPerWord});
  auto zeros = tensors.Need("qzeros", {"I32"}, {n_groups, rows / kPerWord});
  auto scales = tensors.Need("scales", {"F16", "BF16", "F32"}, {n_groups, rows});
  if (!weight || !zeros || !scales) return nullptr;
  return std::make_unique<AwqMatrix>(tensors, *std::move(weight), *std::move(zeros),
                                     *std::move(scales));
}

}  // namespace stagecoach::worker
