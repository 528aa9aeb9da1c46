// MXFP4: E2M1 codes in groups of 32 inputs, whose scales are exponents with a bias of 127.
//   gpt-oss             NAME_blocks U8 [experts, rows, cols / 32, 16]: two codes a byte, the first
//   in
//                       the low half; NAME_scales U8 [experts, rows, cols / 32]
//   compressed-tensors  weight_packed U8 [rows, cols / 2]: the same codes; weight_scale U8 [rows,
//                       cols / 32]
#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "common/encoding/rows.h"
#include "worker/loader/quantized_matrix.h"

namespace stagecoach::worker {
namespace {

class MxFp4Matrix final : public QuantizedMatrix {
 public:
  // Row r of the matrix is row first + r * step of the tensors.
  MxFp4Matrix(size_t cols, size_t first, size_t step, MappedTensor blocks, MappedTensor scales)
      : cols_(cols),
        first_(first),
        step_(step),
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
  const size_t first_, step_;
  const MappedTensor blocks_, scales_;
};

constexpr size_t kGroup = kMxFp4Group;

// False, with a problem, if the inputs are no whole groups.
bool CheckGroups(std::string_view codes, LayerTensors& tensors) {
  if (tensors.cols % kGroup == 0) return true;
  tensors.Problem(codes, fmt::format("{} inputs are not a multiple of MXFP4's groups of {}",
                                     tensors.cols, kGroup));
  return false;
}

}  // namespace

std::unique_ptr<QuantizedMatrix> OpenMxFp4Matrix(LayerTensors& tensors) {
  if (!CheckGroups("_blocks", tensors)) return nullptr;
  const size_t experts = static_cast<size_t>(tensors.place.n_experts);
  const size_t rows = tensors.rows * static_cast<size_t>(tensors.place.n_turns);
  const size_t groups = tensors.cols / kGroup;
  auto blocks = tensors.Need("_blocks", {"U8"}, {experts, rows, groups, kGroup / 2});
  auto scales = tensors.Need("_scales", {"U8"}, {experts, rows, groups});
  if (!blocks || !scales) return nullptr;
  const ExpertPlace& place = tensors.place;
  const size_t first = static_cast<size_t>(place.expert * place.n_turns) * tensors.rows +
                       static_cast<size_t>(place.first_row(static_cast<int64_t>(tensors.rows)));
  return std::make_unique<MxFp4Matrix>(tensors.cols, first, static_cast<size_t>(place.step()),
                                       *std::move(blocks), *std::move(scales));
}

std::unique_ptr<QuantizedMatrix> OpenPackedMxFp4Matrix(LayerTensors& tensors) {
  if (!CheckGroups("weight_packed", tensors)) return nullptr;
  auto codes = tensors.Need("weight_packed", {"U8"}, {tensors.rows, tensors.cols / 2});
  auto scales = tensors.Need("weight_scale", {"U8"}, {tensors.rows, tensors.cols / kGroup});
  if (!codes || !scales) return nullptr;
  return std::make_unique<MxFp4Matrix>(tensors.cols, /*first=*/0, /*step=*/1, *std::move(codes),
                                       *std::move(scales));
}

}  // namespace stagecoach::worker
