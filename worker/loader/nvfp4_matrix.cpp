// NVFP4: E2M1 codes in groups of 16 inputs, whose scales are E4M3 numbers, and a scale of the
// matrix.
//   compressed-tensors  weight_packed U8 [rows, cols / 2]: two codes a byte, the first in the low
//                       half; weight_scale F8_E4M3 [rows, cols / 16]; weight_global_scale F32 [1],
//                       by which a group's scale is divided
//   ModelOpt            weight, weight_scale: the same; weight_scale_2 F32, by which a group's
//   scale
//                       is multiplied
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "worker/loader/quantized_matrix.h"

namespace stagecoach::worker {
namespace {

class NvFp4Matrix final : public QuantizedMatrix {
 public:
  NvFp4Matrix(size_t cols, MappedTensor codes, MappedTensor scales, float matrix_scale)
      : cols_(cols),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        matrix_scale_(matrix_scale) {
    encoding_ = NvFp4Encoding();
  }

  void Rows(size_t first_row, size_t n_rows, uint8_t* to) const override {
    const size_t row_bytes = RowBytes(encoding_, cols_), n_groups = GroupCount(encoding_, cols_);
    for (size_t i = 0; i < n_rows; ++i) {
      const size_t row = first_row + i;
      const GroupedRow<uint8_t> out = GroupedRowAt(encoding_, cols_, to + i * row_bytes);
      std::memcpy(out.matrix_scale, &matrix_scale_, sizeof(matrix_scale_));
      std::memcpy(out.scales, scales_.data() + row * n_groups, n_groups);
      std::memcpy(out.codes, codes_.data() + row * cols_ / 2, cols_ / 2);
    }
  }

 private:
  const size_t cols_;
  const MappedTensor codes_, scales_;
  const float matrix_scale_;
};

// Names of the tensors in a library's files.
struct Names {
  std::string_view codes, matrix_scale;
  bool divides;  // the matrix's scale
};

std::unique_ptr<QuantizedMatrix> Open(LayerTensors& tensors, const Names& names) {
  constexpr size_t kGroup = kNvFp4Group;
  if (tensors.cols % kGroup != 0) {
    tensors.Problem(names.codes, fmt::format("{} inputs are not a multiple of NVFP4's groups of {}",
                                             tensors.cols, kGroup));
    return nullptr;
  }
  auto codes = tensors.Need(names.codes, {"U8"}, {tensors.rows, tensors.cols / 2});
  auto scales = tensors.Need("weight_scale", {"F8_E4M3"}, {tensors.rows, tensors.cols / kGroup});
  const auto matrix_scale = tensors.Need(names.matrix_scale, {"F32"}, {});
  if (!codes || !scales || !matrix_scale) return nullptr;
  if (matrix_scale->stored->end - matrix_scale->stored->begin != sizeof(float)) {
    tensors.Problem(names.matrix_scale, "is not one number");
    return nullptr;
  }
  float scale = LoadElement(matrix_scale->data(), DType::kF32, 0);
  if (names.divides) scale = 1 / scale;
  if (!(scale > 0 && std::isnormal(scale))) {
    tensors.Problem(names.matrix_scale, "is not a number above 0 that a matrix can be scaled with");
    return nullptr;
  }
  return std::make_unique<NvFp4Matrix>(tensors.cols, *std::move(codes), *std::move(scales), scale);
}

}  // namespace

std::unique_ptr<QuantizedMatrix> OpenNvFp4Matrix(LayerTensors& tensors) {
  return Open(tensors,
              {.codes = "weight_packed", .matrix_scale = "weight_global_scale", .divides = true});
}

std::unique_ptr<QuantizedMatrix> OpenModelOptNvFp4Matrix(LayerTensors& tensors) {
  return Open(tensors, {.codes = "weight", .matrix_scale = "weight_scale_2", .divides = false});
}

}  // namespace stagecoach::worker
