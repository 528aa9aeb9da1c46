// FP8 matrices with plain rows: products with one row, which have a kernel of their own.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <random>

#include "common/encoding/rows.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

// A matrix of two parts. n_rows: 7 more than a multiple of 16
struct TwoParts {
  int32_t rows, cols;
  std::vector<StoredPart> stored;
  std::vector<float> weights;  // [rows, cols]

  TwoParts(int32_t n_rows, int32_t n_cols)
      : rows(n_rows),
        cols(n_cols),
        stored(RandomParts({{n_rows - 7, Fp8Tensor()}, {7, Code::kFp8}}, n_cols)) {
    for (const StoredPart& part : stored) {
      const auto n = static_cast<size_t>(part.part.rows);
      std::vector<float> values(n * static_cast<size_t>(cols));
      DecodeRows(part.part.encoding, part.bytes.data(), n, static_cast<size_t>(cols),
                 values.data());
      weights.insert(weights.end(), values.begin(), values.end());
    }
  }
};

struct Call {
  DType x, y;
  bool adds;  // a bias and what y was
};

// Compares the product of a row with one in double precision.
void CheckProduct(const TwoParts& matrix, const std::vector<float>& inputs, const Call& call) {
  const auto ops = NewCudaOps();
  const Matrix w = PackParts(*ops, matrix.stored, matrix.cols);
  const auto rows = static_cast<size_t>(matrix.rows), cols = static_cast<size_t>(matrix.cols);
  const std::vector<float> row = Rounded(inputs, call.x);
  const std::vector<float> bias = RandomFloats(rows, 4);
  const std::vector<float> before = Rounded(RandomFloats(rows, 3), call.y);
  const Values x(*ops, row, call.x), bias_here(*ops, bias), y(*ops, before, call.y);
  ops->Gemm({.x = x,
             .w = &w,
             .bias = call.adds ? bias_here.f32() : nullptr,
             .y = y,
             .n_rows = 1,
             .add_to_y = call.adds});
  const std::vector<float> results = y.Get();
  double worst = 0;
  for (size_t o = 0; o < rows; ++o) {
    double sum = call.adds ? double{before[o]} + bias[o] : 0, size = std::abs(sum);
    for (size_t i = 0; i < cols; ++i) {
      const double product = double{row[i]} * matrix.weights[o * cols + i];
      sum += product;
      size += std::abs(product);
    }
    // Tensor cores cut off bits of sums.
    const double allowed =
        4e-6 * size + (call.y == DType::kF32 ? 0 : Step(call.y) * std::abs(sum)) + 1e-37;
    worst = std::max(worst, std::abs(results[o] - sum) / allowed);
  }
  INFO(DTypeName(call.x) << " to " << DTypeName(call.y) << " adds " << call.adds << " "
                         << matrix.rows << " x " << matrix.cols);
  CHECK(worst < 1);
}

TEST_CASE("FP8: products with one row") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  // Some warps have no inputs, or fewer than others; some tiles fewer outputs.
  for (const int32_t cols : {64, 128, 192, 1088, 4096}) {
    for (const int32_t rows : {23, 311}) {
      const TwoParts matrix(rows, cols);
      const std::vector<float> inputs = RandomFloats(static_cast<size_t>(cols), 2);
      for (const DType y : {DType::kF32, dtype}) {
        for (const bool adds : {false, true}) CheckProduct(matrix, inputs, {dtype, y, adds});
      }
    }
  }
}

// Fewer weights are in flight, or the kernel for several rows takes over.
TEST_CASE("FP8: products with one row of many inputs") {
  for (const int32_t cols : {14336, 28672, 49152, 100096}) {
    const TwoParts matrix(23, cols);
    CheckProduct(matrix, RandomFloats(static_cast<size_t>(cols), 2),
                 {DType::kBF16, DType::kF32, /*adds=*/true});
  }
}

TEST_CASE("FP8: products with one row of inputs of very different sizes") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  for (const int32_t cols : {192, 4096}) {
    const TwoParts matrix(39, cols);
    // Powers of ten from the first one to the second one, or zeros. Without a bias: results of
    // small inputs would vanish beside it.
    std::vector<std::pair<float, float>> ranges = {{-6, 4.5f}, {-6, -6}};
    if (dtype == DType::kBF16) ranges.insert(ranges.end(), {{-6, 5}, {-30, -30}, {-20, 30}});
    for (const auto& [least, most] : ranges) {
      std::mt19937 random(5);
      std::uniform_real_distribution<float> power(least, most + 1e-3f);
      std::vector<float> inputs(static_cast<size_t>(cols));
      for (float& input : inputs) {
        input = std::pow(10.0f, power(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);
      }
      INFO("from 10^" << least << " to 10^" << most);
      CheckProduct(matrix, inputs, {dtype, DType::kF32, false});
      // The same in the last few inputs only.
      std::fill(inputs.begin(), inputs.end() - 5, 0.0f);
      CheckProduct(matrix, inputs, {dtype, DType::kF32, false});
    }
  }
}

TEST_CASE("FP8: products with one row of zeros") {
  const auto ops = NewCudaOps();
  const TwoParts matrix(39, 1088);
  const Matrix w = PackParts(*ops, matrix.stored, matrix.cols);
  const std::vector<float> bias = RandomFloats(39, 4);
  const Values x(*ops, std::vector<float>(1088), DType::kBF16), bias_here(*ops, bias),
      y(*ops, std::vector<float>(39, NAN));
  ops->Gemm({.x = x, .w = &w, .bias = bias_here.f32(), .y = y, .n_rows = 1});
  CHECK(y.Get() == bias);
}

}  // namespace
}  // namespace stagecoach::kernels
