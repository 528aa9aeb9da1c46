// FP8 and INT8 codes in "weight", with scales in "weight_scale" or "weight_scale_inv" (DeepSeek's
// spelling): of the whole matrix, of each row, or of blocks. Written by transformers' fp8,
// DeepSeek and compressed-tensors (float-quantized, int-quantized, naive-quantized).
//
// transformers' fp8 may have the matrices of all experts in one tensor (Mistral Small 4):
//   NAME F8_E4M3 [experts, rows of an expert, cols]
//   NAME_scale_inv [experts, n, m], where n x m blocks have a scale each
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "worker/loader/quantized_matrix.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kUsualBlock = 128;
constexpr float kLargestScale = 128;  // beyond that, a kernel may overflow

// Size of the blocks into which `n_scales` scales divide `n` rows or columns. 0: they do not.
size_t BlockSize(size_t n, size_t n_scales) {
  if (n_scales == 0) return 0;
  if (n_scales == 1) return n;
  if ((n + kUsualBlock - 1) / kUsualBlock == n_scales) return kUsualBlock;
  return n % n_scales == 0 ? n / n_scales : 0;
}

// The rows of the matrix among those of its tensors.
struct RowsOfMatrix {
  size_t matrix = 0;       // its number, where the tensors hold several, one after another
  size_t rows_of_one = 0;  // of each of those
  size_t first_row = 0;    // in its own
};

// The scales of each of the matrices.
struct BlockScales {
  size_t block_rows, block_cols;
  size_t n_block_rows;
};

class ScaledMatrix final : public QuantizedMatrix {
 public:
  ScaledMatrix(Code code, const LayerTensors& tensors, const RowsOfMatrix& rows,
               const BlockScales& blocks, MappedTensor weight, MappedTensor scale,
               std::optional<MappedTensor> zero)
      : cols_(tensors.cols),
        weight_(std::move(weight)),
        scale_(std::move(scale)),
        zero_(std::move(zero)),
        rows_(rows),
        blocks_(blocks),
        n_groups_((tensors.cols - 1) / blocks.block_cols + 1),
        dtype_(scale_.dtype()) {
    encoding_ = code;
    encoding_.scale = code == Code::kFp8 ? DType::kF32 : dtype_;
    encoding_.group = n_groups_ == 1 ? 0 : static_cast<int32_t>(blocks.block_cols);
    encoding_.has_zeros = zero_.has_value();
    const bool tiles_share = blocks.block_rows % 16 == 0 && rows.first_row % 16 == 0;
    encoding_.rows_share_scales =
        code == Code::kFp8 && (tiles_share || blocks.block_rows >= rows.rows_of_one);
  }

  void Rows(size_t first_row, size_t n_rows, uint8_t* to) const override {
    const size_t row_bytes = RowBytes(encoding_, cols_);
    for (size_t i = 0; i < n_rows; ++i) {
      const GroupedRow<uint8_t> row = GroupedRowAt(encoding_, cols_, to + i * row_bytes);
      const size_t at = rows_.first_row + first_row + i;
      const size_t first_scale =
          (rows_.matrix * blocks_.n_block_rows + at / blocks_.block_rows) * n_groups_;
      if (encoding_.scale == dtype_) {
        const size_t bytes = DTypeBytes(dtype_);
        std::memcpy(row.scales, scale_.data() + first_scale * bytes, n_groups_ * bytes);
      } else {
        for (size_t g = 0; g < n_groups_; ++g) {
          const float scale = LoadElement(scale_.data(), dtype_, first_scale + g);
          std::memcpy(row.scales + g * sizeof(scale), &scale, sizeof(scale));
        }
      }
      if (zero_) std::memcpy(row.zeros, zero_->data() + first_scale, n_groups_);
      std::memcpy(row.codes, weight_.data() + (rows_.matrix * rows_.rows_of_one + at) * cols_,
                  cols_);
    }
  }

 private:
  const size_t cols_;
  const MappedTensor weight_, scale_;
  const std::optional<MappedTensor> zero_;
  const RowsOfMatrix rows_;
  const BlockScales blocks_;
  const size_t n_groups_;
  const DType dtype_;  // of the stored scales
};

// The blocks of n x m scales of each matrix. Absent, with a problem, if there are none.
std::optional<BlockScales> ReadBlocks(LayerTensors& tensors, const RowsOfMatrix& rows,
                                      std::string_view suffix, const MappedTensor& scale, size_t n,
                                      size_t m) {
  const BlockScales blocks{BlockSize(rows.rows_of_one, n), BlockSize(tensors.cols, m), n};
  if (blocks.block_rows == 0 || blocks.block_cols == 0) {
    tensors.Problem(suffix,
                    fmt::format("has shape [{}], which does not divide the matrix of "
                                "[{}, {}] into blocks",
                                fmt::join(scale.shape(), ", "), rows.rows_of_one, tensors.cols));
    return std::nullopt;
  }
  for (size_t i = 0; i < n * m; ++i) {
    const float value = LoadElement(scale.data(), scale.dtype(), rows.matrix * n * m + i);
    if (!(std::abs(value) <= kLargestScale)) {
      tensors.Problem(suffix,
                      fmt::format("has a scale that is not a number up to {}", kLargestScale));
      return std::nullopt;
    }
  }
  return blocks;
}

}  // namespace

std::unique_ptr<QuantizedMatrix> OpenScaledMatrix(LayerTensors& tensors) {
  auto weight = tensors.Need("weight", {"F8_E4M3", "I8"}, {tensors.rows, tensors.cols});
  const std::string_view suffix =
      tensors.Find("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
  auto scale = tensors.Need(suffix, {"F32", "BF16", "F16"}, {});
  if (!weight || !scale) return nullptr;
  const std::vector<int64_t>& shape = scale->shape();
  const size_t scale_rows = shape.empty() ? 1 : static_cast<size_t>(shape[0]);
  const size_t scale_cols = shape.size() < 2 ? 1 : static_cast<size_t>(shape[1]);
  const RowsOfMatrix rows{.rows_of_one = tensors.rows};
  const auto blocks =
      ReadBlocks(tensors, rows, suffix, *scale, shape.size() > 2 ? 0 : scale_rows, scale_cols);
  if (!blocks) return nullptr;
  const Code code = weight->stored->dtype == "I8" ? Code::kInt8 : Code::kFp8;
  std::optional<MappedTensor> zero;
  if (code == Code::kInt8 && tensors.Find("weight_zero_point")) {
    zero = tensors.Need("weight_zero_point", {"I8"}, {scale_rows, scale_cols});
    if (!zero) return nullptr;
  }
  return std::make_unique<ScaledMatrix>(code, tensors, rows, *blocks, *std::move(weight),
                                        *std::move(scale), std::move(zero));
}

std::unique_ptr<QuantizedMatrix> OpenScaledExpert(LayerTensors& tensors) {
  constexpr std::string_view kScale = "_scale_inv";
  if (tensors.shape.size() != 3) {
    tensors.Problem("", "holds experts in a form that is not supported");
    return nullptr;
  }
  const size_t n = static_cast<size_t>(tensors.shape[0]);
  const size_t rows_of_one = static_cast<size_t>(tensors.shape[1]);
  const RowsOfMatrix rows{.matrix = tensors.first_row / rows_of_one,
                          .rows_of_one = rows_of_one,
                          .first_row = tensors.first_row % rows_of_one};
  auto weight = tensors.Need("", {"F8_E4M3"}, {n, rows_of_one, tensors.cols});
  auto scale = tensors.Need(kScale, {"F32", "BF16", "F16"}, {});
  if (!weight || !scale) return nullptr;
  const std::vector<int64_t>& shape = scale->shape();
  if (shape.size() != 3 || shape[0] != tensors.shape[0]) {
    tensors.Problem(kScale, fmt::format("has shape [{}], but {} experts have scales in three "
                                        "dimensions",
                                        fmt::join(shape, ", "), n));
    return nullptr;
  }
  const auto blocks = ReadBlocks(tensors, rows, kScale, *scale, static_cast<size_t>(shape[1]),
                                 static_cast<size_t>(shape[2]));
  if (!blocks) return nullptr;
  return std::make_unique<ScaledMatrix>(Code::kFp8, tensors, rows, *blocks, *std::move(weight),
                                        *std::move(scale), std::nullopt);
}

}  // namespace stagecoach::worker
