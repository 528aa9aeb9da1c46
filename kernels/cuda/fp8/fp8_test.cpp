// FP8 matrices with plain rows: products in FP8, and what is fused with products of few rows.
// packed/packed_test.cpp has what such matrices have in common with others.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "common/encoding/encode_rows.h"
#include "common/encoding/rows.h"
#include "kernels/cuda/fp8/fp8_gemm.h"
#include "kernels/cuda/fp8/fp8_rows.h"
#include "kernels/cuda/packed/packed_matrices.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/ops_stream.h"
#include "kernels/cuda/testing/relative_error.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

constexpr DType kType = DType::kBF16;

// Rows as QuantizeFp8Rows makes them.
struct QuantizedRows {
  std::vector<uint8_t> codes;
  std::vector<float> scales;

  QuantizedRows(const std::vector<float>& x, size_t cols) {
    for (size_t row = 0; row < x.size() / cols; ++row) {
      const float* const of_row = x.data() + row * cols;
      float largest = 0;
      for (size_t i = 0; i < cols; ++i) largest = std::max(largest, std::abs(of_row[i]));
      const float factor = largest > 0 ? 448 / largest : 0;
      for (int32_t i = 0; i < static_cast<int32_t>(cols); ++i) {
        codes.push_back(Fp8FromFloat(of_row[cuda::Fp8Place(i)] * factor));
      }
      scales.push_back(largest / 448);
    }
  }
  float Value(size_t row, size_t i, size_t cols) const {
    const auto place = static_cast<size_t>(cuda::Fp8Place(static_cast<int32_t>(i)));
    return FloatFromFp8(codes[row * cols + place]) * scales[row];
  }
};

// x of n_rows rows: rows of different sizes, the third one of zeros.
std::vector<float> Inputs(int32_t n_rows, int32_t cols, DType dtype) {
  std::vector<float> x = RandomFloats(static_cast<size_t>(n_rows) * cols, 2);
  for (int32_t row = 0; row < n_rows; ++row) {
    const float size = row == 2 ? 0 : std::ldexp(1.0f, row % 9 - 4);
    for (int32_t i = 0; i < cols; ++i) x[static_cast<size_t>(row) * cols + i] *= size;
  }
  return Rounded(x, dtype);
}

TEST_CASE("FP8: inputs become the nearest codes, with a scale per row") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, 1000);
  for (const int32_t cols : {64, 192, 4096, 4160, 14336, 24576}) {
    for (const int32_t n_rows : {1, 3, 20}) {
      INFO(DTypeName(dtype) << " " << n_rows << " x " << cols);
      const std::vector<float> x = Inputs(n_rows, cols, dtype);
      const QuantizedRows expected(x, static_cast<size_t>(cols));
      const Values on_device(*ops, x, dtype), scales(*ops, std::vector<float>(n_rows, NAN));
      const Buffer memory = *ops->Allocate(expected.codes.size());
      const cuda::Fp8Inputs out{memory.As<unsigned char>(), scales.f32()};
      REQUIRE(cuda::QuantizeFp8Rows(stream, on_device, n_rows, cols, out) == cudaSuccess);
      std::vector<uint8_t> codes(expected.codes.size());
      ops->Download(memory.data.get(), codes.data(), codes.size());
      CHECK(scales.Get() == expected.scales);
      CHECK(codes == expected.codes);
    }
  }
}

struct Shape {
  std::vector<MatrixPart> parts;
  int32_t cols;
};

// On Hopper. Other GPUs multiply the inputs as they are, and expand the weights for many rows.
TEST_CASE("FP8: products are those of the codes of inputs and weights") {
  const std::vector<Shape> shapes = {
      {{{64, Code::kFp8}}, 192},
      {{{48, Fp8Tensor()}, {32, Code::kFp8}, {16, Fp8Tensor()}}, 640},
      {{{208, Code::kFp8}}, 512},
  };
  const auto ops = NewCudaOps();
  const bool in_fp8 = StreamOf(*ops, 1000).is_hopper;
  const bool tunes = GENERATE(false, true);
  for (const Shape& shape : shapes) {
    const auto cols = static_cast<size_t>(shape.cols);
    const std::vector<StoredPart> stored = RandomParts(shape.parts, shape.cols);
    const Matrix w = PackParts(*ops, stored, shape.cols);
    const auto rows = static_cast<size_t>(w.rows);
    std::vector<float> weights;
    for (const StoredPart& part : stored) {
      const auto n = static_cast<size_t>(part.part.rows);
      std::vector<float> values(n * cols);
      DecodeRows(part.part.encoding, part.bytes.data(), n, cols, values.data());
      weights.insert(weights.end(), values.begin(), values.end());
    }
    struct Call {
      int32_t n_rows;
      DType x, y;
      bool adds;
    };
    for (const auto& [n_rows, dtype, y_type, adds] :
         {Call{9, kType, DType::kF32, true}, Call{17, kType, DType::kF32, false},
          Call{33, kType, kType, false}, Call{64, kType, DType::kF32, true},
          Call{100, DType::kF16, DType::kF16, false}, Call{129, kType, kType, true},
          Call{300, kType, DType::kF32, true}}) {
      INFO(shape.cols << " inputs, " << n_rows << " rows to " << DTypeName(y_type) << " adds "
                      << adds << " tunes " << tunes);
      const std::vector<float> x = Inputs(n_rows, shape.cols, dtype);
      const QuantizedRows codes(x, cols);
      const bool expands = !in_fp8 && n_rows > cuda::PackedMatrices::kMostPackedRows;
      const std::vector<float> multiplied = expands ? Rounded(weights, dtype) : weights;
      const auto n = static_cast<size_t>(n_rows);
      const std::vector<float> bias = RandomFloats(rows, 4);
      const std::vector<float> before = Rounded(RandomFloats(n * rows, 3), y_type);
      std::vector<float> expected(n * rows);
      for (size_t t = 0; t < n; ++t) {
        for (size_t o = 0; o < rows; ++o) {
          double sum = adds ? double{before[t * rows + o]} + bias[o] : 0;
          for (size_t i = 0; i < cols; ++i) {
            const float input = in_fp8 ? codes.Value(t, i, cols) : x[t * cols + i];
            sum += double{input} * multiplied[o * cols + i];
          }
          expected[t * rows + o] = static_cast<float>(sum);
        }
      }
      const Values x_here(*ops, x, dtype), bias_here(*ops, bias);
      const auto multiply = [&] {
        const Values y(*ops, before, y_type);
        ops->Gemm({.x = x_here,
                   .w = &w,
                   .bias = adds ? bias_here.f32() : nullptr,
                   .y = y,
                   .n_rows = n_rows,
                   .add_to_y = adds});
        return y.Get();
      };
      if (tunes) {
        REQUIRE(ops->Rehearse(true).ok());
        multiply();
        REQUIRE(ops->Rehearse(false).ok());
      }
      // Tensor cores keep about 14 bits of sums of FP8 products.
      const std::vector<float> y = multiply();
      CHECK(RelativeError(y, expected) < (y_type == DType::kF32 ? 2e-3 : 4e-3));
      CHECK(WorstError(y, expected) < 2 * Step(kType));
    }
  }
}

TEST_CASE("FP8: a gated activation after a product in FP8") {
  const auto ops = NewCudaOps();
  constexpr int32_t kWidth = 120, kCols = 512;
  const std::vector<StoredPart> stored = RandomParts({{2 * kWidth, Code::kFp8}}, kCols);
  const Matrix w = PackParts(*ops, stored, kCols);
  for (const int32_t n_rows : {17, 100, 300}) {
    const auto n = static_cast<size_t>(n_rows);
    const Values x(*ops, Inputs(n_rows, kCols, kType), kType);
    const Values y(*ops, std::vector<float>(n * 2 * kWidth), kType);
    const GemmArgs gemm{.x = x, .w = &w, .y = y, .n_rows = n_rows};
    std::vector<std::vector<float>> results;
    for (const bool at_once : {false, true}) {
      const Values out(*ops, std::vector<float>(n * kWidth, NAN), kType);
      const ActivationArgs activation{.x = y,
                                      .out = out,
                                      .n_rows = n_rows,
                                      .width = kWidth,
                                      .kind = Activation::kSilu,
                                      .gated = true};
      if (at_once) {
        ops->GemmActivate(gemm, activation);
      } else {
        ops->Gemm(gemm);
        ops->Activate(activation);
      }
      results.push_back(out.Get());
    }
    CHECK(WorstError(results[1], results[0]) < 2 * Step(kType));
  }
}

TEST_CASE("FP8: norms and gated activations of few rows are fused with the product") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  constexpr int32_t kRows = 304, kWidth = kRows / 2;
  for (const int32_t cols : {64, 192, 1088, 4096}) {
    const std::vector<StoredPart> stored = RandomParts({{kRows, Fp8Tensor()}}, cols);
    for (const int32_t n_rows : {1, 3, 5}) {
      for (const int kind : {0, 1, 2}) {  // norm; activation; both
        INFO(DTypeName(dtype) << " " << cols << " inputs, " << n_rows << " rows, kind " << kind);
        const auto n = static_cast<size_t>(n_rows);
        std::vector<std::vector<float>> results;
        for (const bool on_gpu : {false, true}) {
          const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
          const Matrix w = PackParts(*ops, stored, cols);
          const Values hidden(*ops, RandomFloats(n * cols, 5, 3.0f)),
              weight(*ops, RandomFloats(cols, 6)),
              x(*ops, Rounded(RandomFloats(n * cols, 7), dtype), dtype),
              y(*ops, std::vector<float>(n * kRows), dtype),
              out(*ops, std::vector<float>(n * kWidth, NAN), dtype);
          const NormArgs norm{.x = hidden,
                              .weight = weight.f32(),
                              .bias = nullptr,
                              .out = x,
                              .n_rows = n_rows,
                              .width = cols,
                              .kind = NormKind::kRms,
                              .eps = 1e-5f,
                              .add_to_out = false};
          const GemmArgs gemm{.x = x, .w = &w, .y = y, .n_rows = n_rows};
          const ActivationArgs activation{.x = y,
                                          .out = out,
                                          .n_rows = n_rows,
                                          .width = kWidth,
                                          .kind = Activation::kSilu,
                                          .gated = true};
          if (kind == 0) ops->NormGemm(norm, gemm);
          if (kind == 1) ops->GemmActivate(gemm, activation);
          if (kind == 2) ops->NormGemmActivate(norm, gemm, activation);
          results.push_back(kind == 0 ? y.Get() : out.Get());
        }
        CHECK(WorstError(results[1], results[0]) < 3 * Step(dtype));
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
