// GPTQ's layout (AutoGPTQ, GPTQModel). Codes, zeros and scales are stored by input or group first:
//   qweight I32 [cols * bits / 32, rows]: a word has codes of consecutive inputs, from the low bits
//   qzeros I32 [groups, rows * bits / 32]: a word has zeros of consecutive rows
//   scales [groups, rows]; g_idx I32 [cols]: the group of each input
#include <fmt/format.h>

#include <cstring>

#include "common/encoding/rows.h"
#include "worker/loader/quantized_matrix.h"

namespace stagecoach::worker {
namespace {

class GptqMatrix final : public QuantizedMatrix {
 public:
  GptqMatrix(const LayerTensors& tensors, size_t bits, MappedTensor weight, MappedTensor zeros,
             MappedTensor scales, std::vector<int32_t> order)
      : rows_(tensors.rows),
        cols_(tensors.cols),
        bits_(bits),
        zero_offset_(tensors.quantization.zeros_are_one_less ? 1 : 0),
        weight_(std::move(weight)),
        zeros_(std::move(zeros)),
        scales_(std::move(scales)) {
    encoding_ = bits_ == 4 ? Code::kInt4 : Code::kInt8;
    encoding_.scale = scales_.dtype();
    encoding_.has_zeros = true;
    encoding_.group = tensors.quantization.group_size;
    if (GroupCount(encoding_, cols_) == 1) encoding_.group = 0;
    encoding_.is_permuted = !order.empty();
    order_ = std::move(order);
  }

  void Rows(size_t first_row, size_t n_rows, uint8_t* to) const override {
    constexpr size_t kTile = 64;  // rows whose cache lines stay cached for the next word
    const size_t row_bytes = RowBytes(encoding_, cols_), n_words = cols_ * bits_ / 32;
    std::vector<uint8_t> codes(kTile * n_words * 4);
    for (size_t tile = 0; tile < n_rows; tile += kTile) {
      const size_t n = std::min(kTile, n_rows - tile);
      for (size_t word = 0; word < n_words; ++word) {
        const uint8_t* const line = weight_.data() + (word * rows_ + first_row + tile) * 4;
        for (size_t r = 0; r < n; ++r) {
          std::memcpy(codes.data() + (r * n_words + word) * 4, line + r * 4, 4);
        }
      }
      for (size_t r = 0; r < n; ++r) {
        OneRow(first_row + tile + r, codes.data() + r * n_words * 4, to + (tile + r) * row_bytes);
      }
    }
  }

 private:
  void OneRow(size_t row, uint8_t* codes, uint8_t* to) const {
    const GroupedRow<uint8_t> out = GroupedRowAt(encoding_, cols_, to);
    const size_t n_groups = GroupCount(encoding_, cols_), scale_bytes = DTypeBytes(encoding_.scale);
    for (size_t g = 0; g < n_groups; ++g) {
      std::memcpy(out.scales + g * scale_bytes, scales_.data() + (g * rows_ + row) * scale_bytes,
                  scale_bytes);
      out.zeros[g] = Zero(g, row);
    }
    const size_t n_bytes = cols_ * bits_ / 8;
    if (bits_ == 8) {
      for (size_t i = 0; i < n_bytes; ++i) codes[i] ^= 0x80;  // from unsigned to signed
    }
    if (order_.empty()) {
      std::memcpy(out.codes, codes, n_bytes);
    } else {
      ReorderCodes(codes, order_, bits_, out.codes);
    }
  }

  uint8_t Zero(size_t group, size_t row) const {
    const size_t per_word = 32 / bits_;
    uint32_t word;
    std::memcpy(&word, zeros_.data() + (group * (rows_ / per_word) + row / per_word) * 4, 4);
    const uint32_t zero = (word >> (row % per_word * bits_) & ((1u << bits_) - 1)) + zero_offset_;
    return static_cast<uint8_t>(bits_ == 8 ? zero ^ 0x80 : zero);
  }

  const size_t rows_, cols_, bits_;
  const uint32_t zero_offset_;
  const MappedTensor weight_, zeros_, scales_;
};

}  // namespace

std::unique_ptr<QuantizedMatrix> OpenGptqMatrix(LayerTensors& tensors) {
  const size_t rows = tensors.rows, cols = tensors.cols;
  auto weight = tensors.Need("qweight", {"I32"}, {});
  if (!weight) return nullptr;
  // Layers may differ from what config.json says of most.
  const bool has_bytes =
      weight->shape().size() == 2 && static_cast<size_t>(weight->shape()[0]) * 4 == cols;
  const size_t bits = has_bytes ? 8 : 4, per_word = 32 / bits;
  if (rows % per_word != 0 || cols % per_word != 0) {
    tensors.Problem("qweight", fmt::format("has {} rows and {} columns, which are not multiples "
                                           "of {}",
                                           rows, cols, per_word));
    return nullptr;
  }
  const size_t group = tensors.quantization.group_size > 0
                           ? static_cast<size_t>(tensors.quantization.group_size)
                           : cols;
  const size_t n_groups = (cols - 1) / group + 1;
  weight = tensors.Need("qweight", {"I32"}, {cols / per_word, rows});
  auto zeros = tensors.Need("qzeros", {"I32"}, {n_groups, rows / per_word});
  auto scales = tensors.Need("scales", {"F16", "BF16", "F32"}, {n_groups, rows});
  if (!weight || !zeros || !scales) return nullptr;
  std::vector<int32_t> order;
  if (tensors.Find("g_idx")) {
    const auto groups = tensors.Need("g_idx", {"I32"}, {cols});
    if (!groups) return nullptr;
    auto found = OrderByGroup(groups->data(), group, "g_idx", tensors);
    if (!found) return nullptr;
    order = *std::move(found);
  }
  return std::make_unique<GptqMatrix>(tensors, bits, *std::move(weight), *std::move(zeros),
                                      *std::move(scales), std::move(order));
}

}  // namespace stagecoach::worker
