#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <numeric>

#include "common/encoding/blocks.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

using enum Code;

constexpr Code kQuantized[] = {kQ4_0, kQ5_0, kQ8_0, kQ4_K, kQ5_K, kQ6_K};

// Rows of blocks with random codes, and scales that keep the weights near 1 / sqrt(cols).
std::vector<uint8_t> RandomBlocks(Code type, size_t rows, size_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  const BlockForm form = FormOf(type);
  std::vector<uint8_t> bytes(rows * RowBytes(type, cols));
  const size_t step = IsGgufBlock(type) ? BlockBytes(type) : DTypeBytes(*PlainDType(type));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const float steps = static_cast<float>(1 << form.bits) * (form.has_sub_scales() ? 40.0f : 1.0f);
  for (size_t i = 0; i < bytes.size(); i += step) {
    const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
    const float size = 0.5f + static_cast<float>(random() % 1000) / 1000.0f;
    const uint16_t scale =
        F16FromFloat(sign * size * 2 / (steps * std::sqrt(static_cast<float>(cols))));
    std::memcpy(bytes.data() + i + (type == kQ6_K ? 208 : 0), &scale, sizeof(scale));
    if (form.has_minima) std::memcpy(bytes.data() + i + 2, &scale, sizeof(scale));
  }
  return bytes;
}

// The same for grouped codes.
std::vector<uint8_t> RandomGroups(const Encoding& encoding, size_t rows, size_t cols,
                                  uint32_t seed) {
  std::mt19937 random(seed);
  const size_t row_bytes = RowBytes(encoding, cols);
  std::vector<uint8_t> bytes(rows * row_bytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  if (encoding.code == kMxFp4) {
    for (size_t r = 0; r < rows; ++r) {
      uint8_t* const scales = GroupedRowAt(encoding, cols, bytes.data() + r * row_bytes).scales;
      for (size_t g = 0; g < GroupCount(encoding, cols); ++g) {
        scales[g] = static_cast<uint8_t>(117 + random() % 4);
      }
    }
    return bytes;
  }
  const float steps = encoding.code == Code::kInt4 ? 8 : encoding.code == Code::kInt8 ? 128 : 240;
  std::vector<float> scales(GroupCount(encoding, cols));
  for (size_t r = 0; r < rows; ++r) {
    const GroupedRow<uint8_t> row = GroupedRowAt(encoding, cols, bytes.data() + r * row_bytes);
    const bool is_new = !encoding.rows_share_scales || r % 16 == 0;
    for (size_t g = 0; g < scales.size(); ++g) {
      const float size = 0.5f + static_cast<float>(random() % 1000) / 1000.0f;
      if (is_new) scales[g] = size / (steps * std::sqrt(static_cast<float>(cols)));
      StoreElement(row.scales, encoding.scale, g, scales[g]);
      if (encoding.has_zeros && encoding.code == Code::kInt4) {
        row.zeros[g] = static_cast<uint8_t>(random() % 17);
      }
    }
  }
  return bytes;
}

struct Part {
  MatrixPart part;
  std::vector<uint8_t> bytes;
};

std::vector<Part> RandomParts(std::vector<MatrixPart> parts, int32_t cols) {
  std::vector<Part> out;
  for (const MatrixPart& part : parts) {
    const auto random_rows = [&](const auto& make) {
      return make(part.encoding, static_cast<size_t>(part.rows), static_cast<size_t>(cols),
                  static_cast<uint32_t>(7 + out.size()));
    };
    out.push_back({part, IsGrouped(part.encoding.code)
                             ? random_rows(RandomGroups)
                             : random_rows([](const Encoding& encoding, auto... more) {
                                 return RandomBlocks(encoding.code, more...);
                               })});
  }
  return out;
}

Matrix Pack(Ops& ops, const std::vector<Part>& parts, int32_t cols) {
  std::vector<MatrixPart> shapes;
  for (const Part& part : parts) shapes.push_back(part.part);
  Matrix matrix = *ops.NewMatrix(shapes, cols);
  int32_t row = 0;
  for (const Part& part : parts) {
    // In two pieces; the second one is not aligned.
    const int32_t first = part.part.rows / 3;
    const size_t row_bytes = part.bytes.size() / static_cast<size_t>(part.part.rows);
    std::vector<uint8_t> moved(part.bytes.size() + 1);
    std::copy(part.bytes.begin(), part.bytes.end(), moved.begin() + 1);
    ops.PackStored(matrix, row, first, part.bytes.data());
    ops.PackStored(matrix, row + first, part.part.rows - first,
                   moved.data() + 1 + static_cast<size_t>(first) * row_bytes);
    if (part.part.encoding.is_permuted) {
      std::vector<int32_t> order(static_cast<size_t>(cols));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<uint32_t>(row)));
      ops.PackInputOrder(matrix, row, order);
    }
    row += part.part.rows;
  }
  return matrix;
}

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
  const std::vector<Part> parts = RandomParts(shapes, cols);
  auto one_thread = MakeCpuOpsFor(target, 1);
  auto threads = MakeCpuOpsFor(target, 3);
  auto reference = MakeReferenceOps();
  const Matrix w = Pack(*one_thread, parts, cols);
  const Matrix w_reference = Pack(*reference, parts, cols);
  const size_t n = static_cast<size_t>(w.rows), k = static_cast<size_t>(cols);
  constexpr size_t kMostRows = 19;
  std::vector<float> x = RandomFloats(kMostRows * k, 2);
  for (size_t i = 0; i < k; ++i) x[2 * k + i] = 0;          // a row of zeros
  for (size_t i = 0; i < k; i += 32) x[3 * k + i] *= 1000;  // outliers
  const std::vector<float> bias = RandomFloats(n, 3);
  const std::vector<float> whole = Multiply(*threads, w, x, bias);
  const std::vector<float> expected = Multiply(*reference, w_reference, x, bias);
  const std::vector<float> plain_rows(whole.begin(), whole.begin() + 2 * n);
  CHECK(WorstError(plain_rows, {expected.begin(), expected.begin() + 2 * n}) < 1e-4);
  const std::vector<float> with_outliers(whole.begin() + 3 * n, whole.begin() + 4 * n);
  CHECK(WorstError(with_outliers, {expected.begin() + 3 * n, expected.begin() + 4 * n}, 100) <
        1e-3);
  CHECK(WorstError({whole.begin() + 4 * n, whole.end()},
                   {expected.begin() + 4 * n, expected.end()}) < 1e-4);
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

Encoding Grouped(Code code, DType scale, int32_t group, bool has_zeros = false) {
  Encoding encoding(code);
  encoding.scale = scale;
  encoding.group = group;
  encoding.has_zeros = has_zeros;
  return encoding;
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
      {blocks, 8},
      {kFp8, 8},
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
    const std::vector<Part> parts =
        RandomParts({{16, type}, {16, permuted}, {16, fp8}, {5, kQ8_0}}, kCols);
    auto ops = MakeCpuOps({.n_threads = 2});
    auto reference = MakeReferenceOps();
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 60; ++i) ids.push_back(i * 7 % 53);
    const auto embed = [&](Ops& device) {
      const Matrix table = Pack(device, parts, kCols);
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
  const std::vector<Part> parts = RandomParts({{16, kQ8_0}}, 64);
  const Matrix w = Pack(*ops, parts, 64);
  std::vector<float> x = RandomFloats(6 * 64, 4);
  x[64 + 37] = bad;
  const std::vector<float> y = Multiply(*ops, w, x, std::vector<float>(16));
  for (size_t i = 0; i < y.size(); ++i) CHECK(std::isfinite(y[i]) == (i / 16 != 1));
}

}  // namespace
}  // namespace stagecoach::kernels
