#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "common/float_convert.h"
#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

struct Shape {
  int32_t n, k;
};

std::vector<float> Multiply(Ops& ops, const Matrix& w, const std::vector<float>& x,
                            const std::vector<float>& bias, std::vector<float> y, bool add) {
  ops.Gemm({.x = x.data(),
            .w = &w,
            .bias = bias.empty() ? nullptr : bias.data(),
            .y = y.data(),
            .n_rows = static_cast<int32_t>(x.size() / static_cast<size_t>(w.cols)),
            .add_to_y = add});
  REQUIRE(ops.Synchronize().ok());
  return y;
}

TEST_CASE("Gemm equals the reference and does not depend on rows or threads") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const Shape shape = GENERATE(Shape{1, 1}, Shape{15, 7}, Shape{16, 16}, Shape{17, 33},
                               Shape{70, 129}, Shape{100, 1031}, Shape{513, 64});
  INFO(target << " " << DTypeName(dtype) << " " << shape.n << " x " << shape.k);
  auto one_thread = MakeCpuOpsFor(target, 1);
  auto threads = MakeCpuOpsFor(target, 3);
  auto reference = MakeReferenceOps();
  const size_t n = static_cast<size_t>(shape.n), k = static_cast<size_t>(shape.k);
  const std::vector<float> weights = RandomFloats(n * k, 1, 1 / std::sqrt(static_cast<float>(k)));
  const Matrix w = PackedMatrix(*one_thread, shape.n, shape.k, dtype, weights);
  const Matrix w_reference = PackedMatrix(*reference, shape.n, shape.k, dtype, weights);

  constexpr size_t kMostRows = 50;
  const std::vector<float> all_x = RandomFloats(kMostRows * k, 2);
  const std::vector<float> bias = RandomFloats(n, 3), old_y = RandomFloats(kMostRows * n, 4);
  const std::vector<float> whole = Multiply(*threads, w, all_x, bias, old_y, true);
  const std::vector<float> rounded = RoundedInputs(*threads, CodeOf(dtype), all_x);
  CHECK(WorstError(whole, Multiply(*reference, w_reference, rounded, bias, old_y, true)) < 5e-6);

  for (const size_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 28, 29, 33}) {
    const std::vector<float> x(all_x.begin(), all_x.begin() + rows * k);
    const std::vector<float> y(old_y.begin(), old_y.begin() + rows * n);
    for (Ops* ops : {one_thread.get(), threads.get()}) {
      CHECK(SameBits(Multiply(*ops, w, x, bias, y, true).data(), whole.data(), rows * n));
    }
  }
  const std::vector<float> x(all_x.begin() + 7 * k, all_x.begin() + 8 * k);
  const std::vector<float> plain =
      Multiply(*one_thread, w, x, {}, std::vector<float>(n, NAN), false);
  const std::vector<float> rounded_x = RoundedInputs(*threads, CodeOf(dtype), x);
  CHECK(WorstError(plain, Multiply(*reference, w_reference, rounded_x, {}, std::vector<float>(n),
                                   false)) < 3e-6);
}

// Checks one row: the sum of an output is fold(n, add) for n inputs. add(i, sum) is
// sum + x[i] * w[output][i] in float32, where x and w are rounded to bfloat16, and i may be n or
// more.
template <typename Fold>
void CheckOrder(Ops& ops, const Fold& fold) {
  constexpr int32_t kOutputs = 16, kInputs = 301;
  const std::vector<float> x = RandomFloats(kInputs, 1);
  const std::vector<float> weights = RandomFloats(kOutputs * kInputs, 2);
  const Matrix w = PackedMatrix(ops, kOutputs, kInputs, DType::kBF16, weights);
  const std::vector<float> y =
      Multiply(ops, w, x, {}, std::vector<float>(static_cast<size_t>(kOutputs)), false);
  const auto rounded = [](float value) { return FloatFromBF16(BF16FromFloat(value)); };
  for (size_t output = 0; output < kOutputs; ++output) {
    const auto add = [&](size_t i, float sum) {
      if (i >= kInputs) return sum;
      return std::fma(rounded(x[i]), rounded(weights[output * kInputs + i]), sum);
    };
    CHECK(y[output] == fold(size_t{kInputs}, add));
  }
}

TEST_CASE("A pair of bfloat16 inputs counts as two fused multiply-adds, the odd input first") {
  auto ops = MakeCpuOpsFor("avx512_bf16", 1);
  if (!RoundsInputs(*ops)) SKIP("this machine has no AVX512-BF16");
  CheckOrder(*ops, [](size_t n, const auto& add) {
    float sum = 0;
    for (size_t i = 0; i < n; i += 2) sum = add(i, add(i + 1, sum));
    return sum;
  });
}

TEST_CASE("With AMX, even and odd ones of 32 bfloat16 inputs are summed apart") {
  auto ops = MakeCpuOpsFor("amx", 1);
  if (!RoundsInputs(*ops, Code::kFp8)) SKIP("this machine has no AMX");
  CheckOrder(*ops, [](size_t n, const auto& add) {
    float sum = 0;
    for (size_t first = 0; first < n; first += 32) {
      float even = 0, odd = 0;
      for (size_t i = first; i < first + 32; i += 2) {
        even = add(i, even);
        odd = add(i + 1, odd);
      }
      sum += even + odd;
    }
    return sum;
  });
}

TEST_CASE("PackRows accepts unaligned ranges of rows in any dtype") {
  const DType to = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const DType from = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  constexpr int32_t kRows = 37, kCols = 11, kFirst = 21;
  const std::vector<float> values = RandomFloats(kRows * kCols, 5);
  std::vector<char> bytes(kRows * kCols * DTypeBytes(from) + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    char element[4];
    StoreElement(element, from, 0, values[i]);
    std::memcpy(bytes.data() + 1 + i * DTypeBytes(from), element, DTypeBytes(from));
  }
  const auto pack = [&](Ops& device) {
    Matrix matrix = *device.NewMatrix(kRows, kCols, to);
    const char* const source = bytes.data() + 1;
    device.PackRows(matrix, kFirst, kRows - kFirst, source + kFirst * kCols * DTypeBytes(from),
                    from);
    device.PackRows(matrix, 0, kFirst, source, from);
    return matrix;
  };
  const Matrix w = pack(*ops), w_reference = pack(*reference);
  // Embed reads exactly the packed values.
  std::vector<int32_t> ids(kRows);
  for (int32_t i = 0; i < kRows; ++i) ids[i] = kRows - 1 - i;
  std::vector<float> out(kRows * kCols), expected(kRows * kCols);
  EmbedArgs args{.ids = ids.data(), .table = &w, .scale = 1, .out = out.data(), .n_tokens = kRows};
  ops->Embed(args);
  args.table = &w_reference;
  args.out = expected.data();
  reference->Embed(args);
  CHECK(out == expected);
}

TEST_CASE("Embed scales tokens and adds learned positions") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  constexpr int32_t kTokens = 100, kWidth = 77;
  const std::vector<float> tokens = RandomFloats(50 * kWidth, 1), at = RandomFloats(40 * kWidth, 2);
  std::vector<int32_t> ids(kTokens), positions(kTokens);
  for (int32_t i = 0; i < kTokens; ++i) {
    ids[i] = i * 31 % 50;
    positions[i] = i * 17 % 38;
  }
  const auto embed = [&](Ops& device, bool with_tokens) {
    const Matrix table = PackedMatrix(device, 50, kWidth, dtype, tokens);
    const Matrix position_table = PackedMatrix(device, 40, kWidth, dtype, at);
    std::vector<float> out(kTokens * kWidth);
    device.Embed({.ids = ids.data(),
                  .table = with_tokens ? &table : nullptr,
                  .scale = 1.5f,
                  .positions = positions.data(),
                  .position_table = &position_table,
                  .position_offset = 2,
                  .out = out.data(),
                  .n_tokens = kTokens});
    return out;
  };
  CHECK(embed(*ops, true) == embed(*reference, true));
  CHECK(embed(*ops, false) == embed(*reference, false));
}

TEST_CASE("Subnormal and extreme float16 values are read exactly") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  auto ops = MakeCpuOpsFor(target, 1);
  const std::vector<uint16_t> weights = {0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x8000};
  Matrix w = *ops->NewMatrix(static_cast<int32_t>(weights.size()), 1, DType::kF16);
  ops->PackRows(w, 0, w.rows, weights.data(), DType::kF16);
  const float x = 1;
  std::vector<float> y(weights.size());
  ops->Gemm({.x = &x, .w = &w, .y = y.data(), .n_rows = 1});
  for (size_t i = 0; i < weights.size(); ++i) CHECK(y[i] == FloatFromF16(weights[i]));
}

}  // namespace
}  // namespace stagecoach::kernels
