#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "common/encoding/blocks.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "kernels/cpu/kernel_test_util.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

using enum Code;

constexpr Code kQuantized[] = {kQ4_0, kQ5_0, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS};

std::vector<float> Multiply(Ops& ops, const Matrix& w, const std::vector<float>& x,
                            const std::vector<float>& bias) {
  const size_t n_rows = x.size() / static_cast<size_t>(w.cols);
  std::vector<float> y(n_rows * static_cast<size_t>(w.rows), 1.0f);
  ops.Gemm({.x = x.data(),
            .w = &w,
            .bias = bias.data(),
            .y = y.data(),
            .n_rows = static_cast<int32_t>(n_rows),
            .add_to_y = true});
  REQUIRE(ops.Synchronize().ok());
  return y;
}

void CheckGemm(const std::vector<MatrixPart>& shapes, int32_t cols, const std::string& target) {
  const std::vector<StoredPart> parts = RandomParts(shapes, cols);
  auto one_thread = MakeCpuOpsFor(target, 1);
  auto threads = MakeCpuOpsFor(target, 3);
  auto reference = MakeReferenceOps();
  const Matrix w = PackParts(*one_thread, parts, cols);
  const Matrix w_reference = PackParts(*reference, parts, cols);
  const size_t n = static_cast<size_t>(w.rows), k = static_cast<size_t>(cols);
  constexpr size_t kMostRows = 35, kCompared = 19;
  std::vector<float> x = RandomFloats(kMostRows * k, 2);
  for (size_t i = 0; i < k; ++i) x[2 * k + i] = 0;          // a row of zeros
  for (size_t i = 0; i < k; i += 32) x[3 * k + i] *= 1000;  // outliers
  const std::vector<float> bias = RandomFloats(n, 3);
  const std::vector<float> whole = Multiply(*threads, w, x, bias);
  const std::vector<float> rounded = RoundedInputs(*threads, shapes.front().encoding.code, x);
  const std::vector<float> expected = Multiply(*reference, w_reference, rounded, bias);
  const std::vector<float> plain_rows(whole.begin(), whole.begin() + 2 * n);
  CHECK(WorstError(plain_rows, {expected.begin(), expected.begin() + 2 * n}) < 1e-4);
  const std::vector<float> with_outliers(whole.begin() + 3 * n, whole.begin() + 4 * n);
  CHECK(WorstError(with_outliers, {expected.begin() + 3 * n, expected.begin() + 4 * n}, 100) <
        1e-3);
  CHECK(WorstError({whole.begin() + 4 * n, whole.begin() + kCompared * n},
                   {expected.begin() + 4 * n, expected.begin() + kCompared * n}) < 1e-4);
  for (const size_t rows : {1, 2, 3, 4, 5, 8, 9, 17}) {
    const std::vector<float> some(x.begin(), x.begin() + rows * k);
    for (Ops* ops : {one_thread.get(), threads.get()}) {
      CHECK(SameBits(Multiply(*ops, w, some, bias).data(), whole.data(), rows * n));
    }
  }
}

TEST_CASE("Gemm equals the reference for every quantized encoding and does not depend on rows") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  for (const Code type : kQuantized) {
    const int32_t block = static_cast<int32_t>(FormOf(type).elements);
    for (const MatrixPart& shape :
         {MatrixPart{1, type}, MatrixPart{33, type}, MatrixPart{144, type}}) {
      for (const int32_t cols : {block, 3 * block, 512 + block}) {
        INFO(target << " " << EncodingName(type) << " " << shape.rows << " x " << cols);
        CheckGemm({shape}, cols, target);
      }
    }
  }
}

TEST_CASE("Gemm equals the reference for grouped codes and does not depend on rows") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  INFO(target);
  for (const Code code : {kInt4, kInt8}) {
    for (const bool has_zeros : {false, true}) {
      INFO(EncodingName(code) << (has_zeros ? " with zeros" : ""));
      CheckGemm({{33, Grouped(code, DType::kF16, 32, has_zeros)}}, 96, target);
      CheckGemm({{144, Grouped(code, DType::kBF16, 128, has_zeros)}}, 640, target);
      CheckGemm({{16, Grouped(code, DType::kF32, 0, has_zeros)}}, 320, target);
    }
  }
  Encoding permuted = Grouped(kInt4, DType::kF16, 64, true);
  permuted.is_permuted = true;
  CheckGemm({{48, permuted}, {16, permuted}, {7, Grouped(kInt4, DType::kF16, 64, true)}}, 320,
            target);
}

TEST_CASE("Gemm equals the reference for MXFP4 and does not depend on rows") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  INFO(target);
  CheckGemm({{33, MxFp4Encoding()}}, 32, target);
  CheckGemm({{32, MxFp4Encoding()}, {19, MxFp4Encoding()}}, 576, target);
}

TEST_CASE("Gemm equals the reference for NVFP4 and does not depend on rows") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  INFO(target);
  CheckGemm({{33, NvFp4Encoding()}}, 32, target);
  CheckGemm({{32, NvFp4Encoding()}, {19, NvFp4Encoding()}}, 576, target);
}

TEST_CASE("Gemm equals the reference for FP8 and does not depend on rows") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  INFO(target);
  Encoding blocks(kFp8);
  blocks.group = 128;
  blocks.rows_share_scales = true;
  Encoding tensor(kFp8);
  tensor.rows_share_scales = true;
  for (const int32_t cols : {64, 259, 640}) {
    INFO(cols);
    CheckGemm({{144, blocks}, {33, blocks}}, cols, target);
    CheckGemm({{48, tensor}, {16, kFp8}, {1, Grouped(kFp8, DType::kF32, 32)}}, cols, target);
  }
}

// Codes [rows, cols] with a scale per row.
Matrix Fp8Matrix(Ops& ops, const std::vector<uint8_t>& codes, const std::vector<float>& scales) {
  const size_t cols = codes.size() / scales.size(), row_bytes = RowBytes(Encoding(kFp8), cols);
  StoredPart stored{{static_cast<int32_t>(scales.size()), kFp8}, {}};
  stored.bytes.resize(scales.size() * row_bytes);
  for (size_t r = 0; r < scales.size(); ++r) {
    const GroupedRow<uint8_t> row = GroupedRowAt(kFp8, cols, stored.bytes.data() + r * row_bytes);
    std::copy_n(codes.begin() + static_cast<ptrdiff_t>(r * cols), cols, row.codes);
    StoreElement(row.scales, DType::kF32, 0, scales[r]);
  }
  return PackParts(ops, {stored}, static_cast<int32_t>(cols));
}

TEST_CASE("Every FP8 code counts as its value times the scale, rounded once") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const float scale = GENERATE(1.0f, -0.0137f, 0x1.234567p-9f, 0x1.8p-130f);
  INFO(target << ", scale " << scale);
  constexpr size_t kSide = 16;  // a row of the matrix has the codes with the same high bits
  std::vector<uint8_t> codes(kSide * kSide);
  std::vector<float> expected(kSide * kSide);
  for (size_t row = 0; row < kSide; ++row) {
    for (size_t col = 0; col < kSide; ++col) {
      const uint8_t code = static_cast<uint8_t>(row * kSide + col);
      const bool is_nan = (code & 0x7f) == 0x7f;  // which no checkpoint has
      codes[row * kSide + col] = is_nan ? 0 : code;
      expected[col * kSide + row] = is_nan ? 0.0f : FloatFromFp8(code) * scale;
    }
  }
  auto ops = MakeCpuOpsFor(target, 1);
  const Matrix w = Fp8Matrix(*ops, codes, std::vector<float>(kSide, scale));
  for (const size_t rows : {size_t{1}, size_t{3}, kSide, 3 * kSide}) {
    for (size_t first = 0; first < kSide; first += std::min(rows, kSide)) {
      std::vector<float> x(rows * kSide), y(rows * kSide);
      for (size_t r = 0; r < rows; ++r) x[r * kSide + (first + r) % kSide] = 1;
      ops->Gemm({.x = x.data(), .w = &w, .y = y.data(), .n_rows = static_cast<int32_t>(rows)});
      for (size_t i = 0; i < y.size(); ++i) {
        CHECK(y[i] == expected[(first * kSide + i) % expected.size()]);
      }
    }
  }
}

// The sum of an output with one row of inputs, in the order of the instruction set.
float Fp8Sum(const std::vector<float>& x, const uint8_t* codes, float scale, bool has_amx) {
  float sum = 0;
  if (!has_amx) {
    for (size_t i = 0; i < x.size(); ++i) sum = std::fma(x[i], FloatFromFp8(codes[i]) * scale, sum);
    return sum;
  }
  constexpr size_t kScaled = 256, kStep = 32;
  for (size_t first = 0; first < x.size(); first += kScaled) {
    const size_t end = std::min(first + kScaled, x.size());
    float scaled = 0;
    for (size_t step = first; step < end; step += kStep) {
      float of_parity[2] = {};
      for (size_t i = step; i < std::min(step + kStep, end); ++i) {
        of_parity[i % 2] = std::fma(x[i], FloatFromFp8(codes[i]), of_parity[i % 2]);
      }
      scaled += of_parity[0] + of_parity[1];
    }
    sum = std::fma(scaled, scale, sum);
  }
  return sum;
}

TEST_CASE("FP8 weights are added in input order, with AMX as sums of 256 inputs") {
  const std::string target = GENERATE("avx2", "avx512", "avx512_bf16", "amx");
  if (std::ranges::count(RunnableTargets(), target) == 0) SKIP("not on this machine");
  INFO(target);
  constexpr size_t kOutputs = 35, kInputs = 619;
  std::vector<uint8_t> codes(kOutputs * kInputs);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 2654435761u >> 16);
  for (uint8_t& code : codes) code = (code & 0x7f) == 0x7f ? 1 : code;
  std::vector<float> scales = RandomFloats(kOutputs, 8);
  auto ops = MakeCpuOpsFor(target, 1);
  const Matrix w = Fp8Matrix(*ops, codes, scales);
  const std::vector<float> x = RandomFloats(kInputs, 9);
  std::vector<float> y(kOutputs);
  ops->Gemm({.x = x.data(), .w = &w, .y = y.data(), .n_rows = 1});
  const std::vector<float> rounded = RoundedInputs(*ops, kFp8, x);
  for (size_t i = 0; i < kOutputs; ++i) {
    CHECK(y[i] == Fp8Sum(rounded, codes.data() + i * kInputs, scales[i], RoundsInputs(*ops, kFp8)));
  }
}

TEST_CASE("packed weights take at most 1.03 of the bytes in the checkpoint") {
  struct Case {
    Encoding encoding;
    double stored_bits;  // per weight, scales and packed zeros included
  };
  Encoding blocks(kFp8);
  blocks.group = 128;
  blocks.rows_share_scales = true;
  const Case cases[] = {
      {Grouped(kInt4, DType::kF16, 128, true), 4 + (16 + 4) / 128.0},
      {Grouped(kInt4, DType::kF16, 32, true), 4 + (16 + 4) / 32.0},
      {Grouped(kInt4, DType::kBF16, 32), 4 + 16 / 32.0},
      {Grouped(kInt8, DType::kF16, 128, true), 8 + (16 + 8) / 128.0},
      {Grouped(kInt8, DType::kBF16, 0), 8},
      {MxFp4Encoding(), 4 + 8 / 32.0},
      {NvFp4Encoding(), 4 + 8 / 16.0},
      {blocks, 8},
      {kFp8, 8},
      {kIQ4_NL, 4.5},
      {kIQ4_XS, 4.25},
  };
  auto ops = MakeCpuOps({.n_threads = 1});
  for (const Case& c : cases) {
    const MatrixPart part{1024, c.encoding};
    INFO(EncodingName(c.encoding));
    CHECK(static_cast<double>(ops->MatrixBytes({&part, 1}, 1024)) <
          1.03 * c.stored_bits / 8 * 1024 * 1024);
  }
}

TEST_CASE("Gemm handles a matrix with several encodings") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  INFO(target);
  CheckGemm({{32, kQ5_0}, {48, kQ5_0}, {16, kQ8_0}, {64, kF16}, {19, kQ6_K}}, 256, target);
}

TEST_CASE("Embed reads quantized rows exactly") {
  for (const Code type : kQuantized) {
    INFO(EncodingName(type));
    constexpr int32_t kCols = 512;
    Encoding permuted = Grouped(kInt4, DType::kBF16, 128, true);
    permuted.is_permuted = true;
    Encoding fp8(kFp8);
    fp8.group = 128;
    fp8.rows_share_scales = true;
    const std::vector<StoredPart> parts = RandomParts(
        {{16, type}, {16, permuted}, {16, fp8}, {16, NvFp4Encoding()}, {5, kQ8_0}}, kCols);
    auto ops = MakeCpuOps({.n_threads = 2});
    auto reference = MakeReferenceOps();
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 70; ++i) ids.push_back(i * 7 % 69);
    const auto embed = [&](Ops& device) {
      const Matrix table = PackParts(device, parts, kCols);
      std::vector<float> out(ids.size() * kCols);
      device.Embed({.ids = ids.data(),
                    .table = &table,
                    .scale = 3,
                    .out = out.data(),
                    .n_tokens = static_cast<int32_t>(ids.size())});
      return out;
    };
    CHECK(embed(*ops) == embed(*reference));
  }
}

TEST_CASE("a non-finite value in a row affects all outputs of that row") {
  const float bad = GENERATE(NAN, INFINITY);
  auto ops = MakeCpuOps({.n_threads = 1});
  const std::vector<StoredPart> parts = RandomParts({{16, kQ8_0}}, 64);
  const Matrix w = PackParts(*ops, parts, 64);
  std::vector<float> x = RandomFloats(6 * 64, 4);
  x[64 + 37] = bad;
  const std::vector<float> y = Multiply(*ops, w, x, std::vector<float>(16));
  for (size_t i = 0; i < y.size(); ++i) CHECK(std::isfinite(y[i]) == (i / 16 != 1));
}

}  // namespace
}  // namespace stagecoach::kernels
