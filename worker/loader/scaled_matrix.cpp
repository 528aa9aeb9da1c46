// FP8 and INT8 codes in "weight", with scales in "weight_scale" or "weight_scale_inv" (DeepSeek's
// spelling): of the whole matrix, of each row, or of blocks. Written by transformers' fp8,
// DeepSeek and compressed-tensors (float-quantized, int-quantized, naive-quantized).
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

class ScaledMatrix final : public QuantizedMatrix {
 public:
  ScaledMatrix(Code code, const LayerTensors& tensors, MappedTensor weight, MappedTensor scale,
               std::optional<MappedTensor> zero, size_t block_rows, size_t block_cols)
      : cols_(tensors.cols),
        weight_(std::move(weight)),
        scale_(std::move(scale)),
        zero_(std::move(zero)),
        block_rows_(block_rows),
        n_groups_((tensors.cols - 1) / block_cols + 1),
        dtype_(scale_.dtype()) {
    encoding_ = code;
    encoding_.scale = code == Code::kFp8 ? DType::kF32 : dtype_;
    encoding_.group = n_groups_ == 1 ? 0 : static_cast<int32_t>(block_cols);
    encoding_.has_zeros = zero_.has_value();
    encoding_.rows_share_scales =
        code == Code::kFp8 && (block_rows % 16 == 0 || block_rows >= tensors.rows);
  }

  void Rows(size_t first_row, size_t n_rows, uint8_t* to) const override {
    const size_t row_bytes = RowBytes(encoding_, cols_);
    for (size_t i = 0; i < n_rows; ++i) {
      const GroupedRow<uint8_t> row = GroupedRowAt(encoding_, cols_, to + i * row_bytes);
      const size_t first_scale = (first_row + i) / block_rows_ * n_groups_;
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
      std::memcpy(row.codes, weight_.data() + (first_row + i) * cols_, cols_);
    }
  }

 private:
  const size_t cols_;
  const MappedTensor weight_, scale_;
  const std::optional<MappedTensor> zero_;
  const size_t block_rows_, n_groups_;
  const DType dtype_;  // of the stored scales
};

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
  const size_t block_rows = BlockSize(tensors.rows, scale_rows);
  const size_t block_cols = BlockSize(tensors.cols, scale_cols);
  if (shape.size() > 2 || block_rows == 0 || block_cols == 0) {
    tensors.Problem(suffix, fmt::format("has shape [{}], which does not divide the matrix of "
                                        "[{}, {}] into blocks",
                                        fmt::join(shape, ", "), tensors.rows, tensors.cols));
    return nullptr;
  }
  const DType dtype = scale->dtype();
  for (size_t i = 0; i < scale_rows * scale_cols; ++i) {
    if (!(std::abs(LoadElement(scale->data(), dtype, i)) <= kLargestScale)) {
      tensors.Problem(suffix,
                      fmt::format("has a scale that is not a number up to {}", kLargestScale));
      return nullptr;
    }
  }
  const Code code = weight->stored->dtype == "I8" ? Code::kInt8 : Code::kFp8;
  std::optional<MappedTensor> zero;
  if (code == Code::kInt8 && tensors.Find("weight_zero_point")) {
    zero = tensors.Need("weight_zero_point", {"I8"}, {scale_rows, scale_cols});
    if (!zero) return nullptr;
  }
  return std::make_unique<ScaledMatrix>(code, tensors, *std::move(weight), *std::move(scale),
                                        std::move(zero), block_rows, block_cols);
}

}  // namespace stagecoach::worker
