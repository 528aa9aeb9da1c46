// MXFP4 as in gpt-oss, whose tensors hold all experts:
//   NAME_blocks U8 [experts, rows, cols / 32, 16]: two codes a byte, the first in the low half
//   NAME_scales U8 [experts, rows, cols / 32]: exponents with a bias of 127
#include <fmt/format.h>

#include <cstring>

#include "common/encoding/rows.h"
#include "worker/loader/quantized_matrix.h"

namespace stagecoach::worker {
namespace {

class MxFp4Matrix final : public QuantizedMatrix {
 public:
  MxFp4Matrix(const LayerTensors& tensors, MappedTensor blocks, MappedTensor scales)
      : cols_(tensors.cols),
        step_(static_cast<size_t>(tensors.place.step())),
        first_(static_cast<size_t>(tensors.place.expert * tensors.place.n_turns) * tensors.rows +
               static_cast<size_t>(tensors.place.first_row(static_cast<int64_t>(tensors.rows)))),
        blocks_(std::move(blocks)),
        scales_(std::move(scales)) {
    encoding_ = MxFp4Encoding();
  }

  void Rows(size_t first_row, size_t n_rows, uint8_t* to) const override {
    const size_t row_bytes = RowBytes(encoding_, cols_), n_groups = GroupCount(encoding_, cols_);
    for (size_t i = 0; i < n_rows; ++i) {
      const size_t row = first_ + (first_row + i) * step_;
      const GroupedRow<uint8_t> out = GroupedRowAt(encoding_, cols_, to + i * row_bytes);
      std::memcpy(out.scales, scales_.data() + row * n_groups, n_groups);
      std::memcpy(out.codes, blocks_.data() + row * cols_ / 2, cols_ / 2);
    }
  }

 private:
  const size_t cols_;
  const size_t step_, first_;  // row r of the matrix is row first_ + r * step_ of the tensor
  const MappedTensor blocks_, scales_;
};

}  // namespace

std::unique_ptr<QuantizedMatrix> OpenMxFp4Matrix(LayerTensors& tensors) {
  constexpr size_t kGroup = kMxFp4Group;
  if (tensors.cols % kGroup != 0) {
    tensors.Problem("_blocks", fmt::format("{} inputs are not a multiple of MXFP4's groups of {}",
                                           tensors.cols, kGroup));
    return nullptr;
  }
  const size_t experts = static_cast<size_t>(tensors.place.n_experts);
  const size_t rows = tensors.rows * static_cast<size_t>(tensors.place.n_turns);
  const size_t groups = tensors.cols / kGroup;
  auto blocks = tensors.Need("_blocks", {"U8"}, {experts, rows, groups, kGroup / 2});
  auto scales = tensors.Need("_scales", {"U8"}, {experts, rows, groups});
  if (!blocks || !scales) return nullptr;
  return std::make_unique<MxFp4Matrix>(tensors, *std::move(blocks), *std::move(scales));
}

}  // namespace stagecoach::worker
