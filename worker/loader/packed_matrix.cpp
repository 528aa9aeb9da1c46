// compressed-tensors' pack-quantized layout, 4 or 8 bits:
//   weight_packed I32 [rows, cols * bits / 32, rounded up]: a word has codes of consecutive inputs,
//   from the low bits; weight_scale [rows, groups]
//   weight_zero_point I32 [rows * bits / 32, rounded up, groups]: a word has zeros of consecutive
//   rows; in older files I8 [rows, groups], where 0 is the middle code
//   weight_g_idx I32 [cols]: the group of each input, or -1
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "common/encoding/rows.h"
#include "worker/loader/quantized_matrix.h"

namespace stagecoach::worker {
namespace {

class PackedMatrix final : public QuantizedMatrix {
 public:
  PackedMatrix(const LayerTensors& tensors, size_t bits, size_t group, MappedTensor weight,
               MappedTensor scales, std::optional<MappedTensor> zeros, std::vector<int32_t> order)
      : cols_(tensors.cols),
        bits_(bits),
        weight_(std::move(weight)),
        scales_(std::move(scales)),
        zeros_(std::move(zeros)) {
    encoding_ = bits == 4 ? Code::kInt4 : Code::kInt8;
    encoding_.scale = scales_.dtype();
    encoding_.has_zeros = zeros_.has_value();
    encoding_.group = group == cols_ ? 0 : static_cast<int32_t>(group);
    encoding_.is_permuted = !order.empty();
    order_ = std::move(order);
  }

  void Rows(size_t first_row, size_t n_rows, uint8_t* to) const override {
    const size_t row_bytes = RowBytes(encoding_, cols_);
    const size_t stored_bytes = static_cast<size_t>(weight_.shape()[1]) * 4;
    const size_t n_bytes = (cols_ * bits_ + 7) / 8, n_groups = GroupCount(encoding_, cols_);
    const size_t scale_bytes = DTypeBytes(encoding_.scale);
    std::vector<uint8_t> codes(n_bytes);
    for (size_t i = 0; i < n_rows; ++i) {
      const size_t row = first_row + i;
      const GroupedRow<uint8_t> out = GroupedRowAt(encoding_, cols_, to + i * row_bytes);
      std::memcpy(out.scales, scales_.data() + row * n_groups * scale_bytes,
                  n_groups * scale_bytes);
      if (zeros_) {
        for (size_t g = 0; g < n_groups; ++g) out.zeros[g] = Zero(*zeros_, g, n_groups, row);
      }
      std::memcpy(codes.data(), weight_.data() + row * stored_bytes, n_bytes);
      if (bits_ == 8) {
        for (uint8_t& code : codes) code ^= 0x80;  // from unsigned to signed
      }
      if (order_.empty()) {
        std::memcpy(out.codes, codes.data(), n_bytes);
      } else {
        ReorderCodes(codes.data(), order_, bits_, out.codes);
      }
    }
  }

 private:
  uint8_t Zero(const MappedTensor& zeros, size_t group, size_t n_groups, size_t row) const {
    if (zeros.stored->dtype == "I8") {
      const uint8_t zero = zeros.data()[row * n_groups + group];
      return static_cast<uint8_t>(bits_ == 8 ? zero : zero + 8);
    }
    const size_t per_word = 32 / bits_;
    uint32_t word;
    std::memcpy(&word, zeros.data() + (row / per_word * n_groups + group) * 4, 4);
    const uint32_t zero = word >> (row % per_word * bits_) & ((1u << bits_) - 1);
    return static_cast<uint8_t>(bits_ == 8 ? zero ^ 0x80 : zero);
  }

  const size_t cols_, bits_;
  const MappedTensor weight_, scales_;
  const std::optional<MappedTensor> zeros_;
};

}  // namespace

std::unique_ptr<QuantizedMatrix> OpenPackedMatrix(LayerTensors& tensors) {
  // MXFP4 has tensors of the same names.
  if (const auto stored = tensors.Find("weight_packed"); stored && stored->stored->dtype == "U8") {
    return OpenPackedMxFp4Matrix(tensors);
  }
  const size_t rows = tensors.rows, cols = tensors.cols;
  auto weight = tensors.Need("weight_packed", {"I32"}, {});
  auto scales = tensors.Need("weight_scale", {"F16", "BF16", "F32"}, {});
  if (!weight || !scales) return nullptr;
  const std::vector<int64_t>& shape = weight->shape();
  size_t bits = 0;
  for (const size_t wanted : {size_t{4}, size_t{8}}) {
    if (shape.size() == 2 && static_cast<size_t>(shape[0]) == rows &&
        static_cast<size_t>(shape[1]) == (cols * wanted + 31) / 32) {
      bits = wanted;
    }
  }
  if (bits == 0) {
    tensors.Problem("weight_packed",
                    fmt::format("has shape [{}], which is not [{}, {}] at 4 or 8 bits",
                                fmt::join(shape, ", "), rows, cols));
    return nullptr;
  }
  const std::vector<int64_t>& scale_shape = scales->shape();
  const size_t n_groups = scale_shape.size() == 2 ? static_cast<size_t>(scale_shape[1]) : 1;
  if (scale_shape.empty() || static_cast<size_t>(scale_shape[0]) != rows || n_groups == 0 ||
      cols % n_groups != 0) {
    tensors.Problem("weight_scale",
                    fmt::format("has shape [{}], which does not divide {} rows of {} inputs into "
                                "groups",
                                fmt::join(scale_shape, ", "), rows, cols));
    return nullptr;
  }
  std::optional<MappedTensor> zeros = tensors.Find("weight_zero_point");
  if (zeros) {
    const bool is_packed = zeros->stored->dtype == "I32";
    const size_t zero_rows = is_packed ? (rows * bits + 31) / 32 : rows;
    zeros = tensors.Need("weight_zero_point", {"I32", "I8"}, {zero_rows, n_groups});
    if (!zeros) return nullptr;
  }
  std::vector<int32_t> order;
  if (tensors.Find("weight_g_idx")) {
    const auto groups = tensors.Need("weight_g_idx", {"I32"}, {cols});
    if (!groups) return nullptr;
    int32_t first;
    std::memcpy(&first, groups->data(), sizeof(first));
    if (first >= 0) {
      auto found = OrderByGroup(groups->data(), cols / n_groups, "weight_g_idx", tensors);
      if (!found) return nullptr;
      order = *std::move(found);
    }
  }
  return std::make_unique<PackedMatrix>(tensors, bits, cols / n_groups, *std::move(weight),
                                        *std::move(scales), std::move(zeros), std::move(order));
}

}  // namespace stagecoach::worker
