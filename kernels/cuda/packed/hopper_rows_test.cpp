// Packed weights and tens to hundreds of rows on Hopper: every way against the reference.
#include "kernels/cuda/packed/hopper_rows.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "common/encoding/encoding.h"
#include "kernels/cuda/packed/packed_matrices.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/ops_stream.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

using enum Code;

struct Shape {
  Encoding encoding;
  int32_t rows, cols;
};

// Every form and kind of scale, with strips that are not whole and outputs that no vector takes.
const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {Grouped(kInt4, DType::kF16, 128), 389, 1024},
      {Grouped(kInt4, DType::kBF16, 128, true), 256, 256},
      {Grouped(kInt4, DType::kF16, 32, true), 136, 512},
      {Grouped(kInt4, DType::kF32, 64), 392, 768},
      {Grouped(kInt4, DType::kF16, 0, true), 257, 768},
      {Grouped(kInt4, DType::kF16, 256), 64, 1536},
      {Grouped(kInt8, DType::kBF16, 128), 272, 2304},
      {Grouped(kInt8, DType::kF32, 32, true), 128, 512},
      {Grouped(kInt8, DType::kF16, 0), 40, 512},
      {Fp8Blocks(), 272, 768},
      {Grouped(kFp8, DType::kF32, 32), 136, 512},
      {MxFp4Encoding(), 264, 768},
      {NvFp4Encoding(), 264, 768},
      {kQ4_0, 130, 512},
      {kQ5_0, 272, 512},
      {kQ8_0, 272, 1024},
      {kQ4_K, 400, 1024},
      {kQ5_K, 272, 512},
      {kQ6_K, 272, 768},
      {kIQ4_NL, 136, 512},
      {kIQ4_XS, 272, 768},
  };
  return shapes;
}

constexpr int32_t kMostRows = 300;

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(a[i] - b[i], 2);
    size += std::pow(b[i], 2);
  }
  return std::sqrt(error / size);
}

TEST_CASE("Packed weights on Hopper: every way equals the reference") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  for (const Shape& shape : Shapes()) {
    if (dtype == DType::kF16 && shape.rows % 8 != 0) continue;  // a part of the shapes
    const auto ops = NewCudaOps();
    const auto reference = MakeReferenceOps();
    const cuda::Stream stream = StreamOf(*ops, 1000);
    const std::vector<StoredPart> stored = RandomParts({{shape.rows, shape.encoding}}, shape.cols);
    const Matrix w = PackParts(*ops, stored, shape.cols);
    const Matrix w_reference = PackParts(*reference, stored, shape.cols);
    cuda::PackedPart part = cuda::PackedPartOf(shape.encoding, shape.rows, shape.cols);
    part.tiles = w.buffer.As<unsigned char>();
    if (!cuda::SuitsHopperRows(stream, part)) return;
    const auto cols = static_cast<size_t>(shape.cols), rows = static_cast<size_t>(shape.rows);
    const std::vector<float> input = Rounded(RandomFloats(kMostRows * cols, 2), dtype);
    const std::vector<float> bias = RandomFloats(rows, 3),
                             before = RandomFloats(kMostRows * rows, 4);
    const Values their_y(*reference, before);
    {
      const Values x(*reference, input), their_bias(*reference, bias);
      reference->Gemm({.x = x,
                       .w = &w_reference,
                       .bias = their_bias.f32(),
                       .y = their_y,
                       .n_rows = kMostRows,
                       .add_to_y = true});
    }
    const std::vector<float> all = their_y.Get();
    const Values x(*ops, input, dtype), our_bias(*ops, bias);
    for (const int32_t n_rows : {17, 64, 100, kMostRows}) {
      const size_t n = static_cast<size_t>(n_rows) * rows;
      const std::vector<float> theirs(all.begin(), all.begin() + static_cast<int64_t>(n));
      for (const int32_t tile_rows : {32, 64, 128}) {
        for (const int32_t n_parts : {0, 1, 3, 8}) {
          if (n_parts > part.n_blocks()) continue;
          const bool to_float = n_parts != 3;
          INFO(DTypeName(dtype) << " " << EncodingName(shape.encoding) << " rows " << n_rows
                                << " way " << tile_rows << " " << n_parts);
          const DType y_type = to_float ? DType::kF32 : dtype;
          const Values y(*ops, Rounded(before, y_type), y_type);
          const auto multiply = dtype == DType::kBF16 ? cuda::HopperRowsBF16 : cuda::HopperRowsF16;
          REQUIRE(multiply(stream,
                           {.product = {.w = part,
                                        .x = Act(x).data,
                                        .bias = our_bias.f32(),
                                        .y = Act(y).data,
                                        .n_rows = n_rows,
                                        .y_stride = shape.rows,
                                        .add_to_y = true,
                                        .y_is_float = to_float}},
                           {tile_rows, n_parts}) == cudaSuccess);
          std::vector<float> ours = y.Get();
          const std::vector<float> untouched = Rounded(before, y_type);
          CHECK(std::equal(ours.begin() + static_cast<int64_t>(n), ours.end(),
                           untouched.begin() + static_cast<int64_t>(n)));
          ours.resize(n);
          CHECK(RelativeError(ours, theirs) < 4e-3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
