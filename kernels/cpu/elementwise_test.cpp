#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Norms equal the reference and do not depend on rows or threads") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const NormKind kind = GENERATE(NormKind::kLayerNorm, NormKind::kRms, NormKind::kRmsPlusOne);
  const int32_t width = GENERATE(1, 5, 64, 127, 640, 1031);
  const bool add = GENERATE(false, true);
  auto ops = MakeCpuOpsFor(target, 3);
  auto reference = MakeReferenceOps();
  constexpr int32_t kRows = 70;
  const size_t n = static_cast<size_t>(kRows * width);
  const std::vector<float> x = RandomFloats(n, 1, 3), weight = RandomFloats(width, 2);
  const std::vector<float> bias = RandomFloats(width, 3), old = RandomFloats(n, 4);
  const auto norm = [&](Ops& device, int32_t first, int32_t rows) {
    std::vector<float> out(old.begin() + first * width, old.begin() + (first + rows) * width);
    device.Norm({.x = x.data() + first * width,
                 .weight = weight.data(),
                 .bias = kind == NormKind::kLayerNorm ? bias.data() : nullptr,
                 .out = out.data(),
                 .n_rows = rows,
                 .width = width,
                 .kind = kind,
                 .eps = 1e-5f,
                 .add_to_out = add});
    return out;
  };
  const std::vector<float> whole = norm(*ops, 0, kRows);
  CHECK(WorstError(whole, norm(*reference, 0, kRows)) < 2e-5);
  auto alone = MakeCpuOpsFor(target, 1);
  for (int32_t row : {0, 1, 35, kRows - 1}) {
    CHECK(SameBits(norm(*alone, row, 1).data(), whole.data() + row * width, width));
  }
}

TEST_CASE("Norm works in place") {
  auto ops = MakeCpuOps({.n_threads = 1});
  std::vector<float> x = RandomFloats(100, 1), out(100);
  const std::vector<float> weight = RandomFloats(100, 2);
  NormArgs args{.x = x.data(),
                .weight = weight.data(),
                .out = out.data(),
                .n_rows = 1,
                .width = 100,
                .kind = NormKind::kRms,
                .eps = 1e-6f};
  ops->Norm(args);
  args.out = x.data();
  ops->Norm(args);
  CHECK(x == out);
}

// Checks the relative error over the whole range, including the tails.
TEST_CASE("Activations equal the reference to one part in a million") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const Activation kind = GENERATE(Activation::kRelu, Activation::kReluSquared, Activation::kGelu,
                                   Activation::kGeluTanh, Activation::kSilu);
  const bool gated = GENERATE(false, true);
  auto ops = MakeCpuOpsFor(target, 3);
  auto reference = MakeReferenceOps();
  constexpr int32_t kRows = 21, kWidth = 997;
  std::vector<float> x = RandomFloats(2 * kRows * kWidth, 1, 2);
  x[0] = 0, x[1] = -0.0f, x[2] = 90, x[3] = -90, x[4] = 1000, x[5] = -1000, x[6] = 1e-20f;
  const auto activate = [&](Ops& device) {
    std::vector<float> out(kRows * kWidth);
    device.Activate({.x = x.data(),
                     .out = out.data(),
                     .n_rows = kRows,
                     .width = kWidth,
                     .kind = kind,
                     .gated = gated});
    return out;
  };
  const std::vector<float> out = activate(*ops);
  CHECK(WorstError(out, activate(*reference), 0.02) < 2e-6);
  auto alone = MakeCpuOpsFor(target, 1);
  std::vector<float> row(kWidth);
  const int32_t stride = gated ? 2 * kWidth : kWidth;
  alone->Activate({.x = x.data() + 20 * stride,
                   .out = row.data(),
                   .n_rows = 1,
                   .width = kWidth,
                   .kind = kind,
                   .gated = gated});
  CHECK(SameBits(row.data(), out.data() + 20 * kWidth, kWidth));
}

TEST_CASE("Activate multiplies by given rows, which may be part of longer ones") {
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  constexpr int32_t kRows = 30, kWidth = 700, kStride = 2000;
  const std::vector<float> x = RandomFloats(kRows * kWidth, 1, 2);
  const std::vector<float> up = RandomFloats(kRows * kStride, 2);
  const auto activate = [&](Ops& device) {
    std::vector<float> out = x;
    device.Activate({.x = out.data(),
                     .out = out.data(),
                     .n_rows = kRows,
                     .width = kWidth,
                     .kind = Activation::kGeluTanh,
                     .gated = false,
                     .up = up.data() + 5,
                     .up_stride = kStride});
    return out;
  };
  const std::vector<float> out = activate(*ops);
  CHECK(WorstError(out, activate(*reference), 0.02) < 2e-6);
  CHECK(std::abs(out[kWidth] / up[kStride + 5]) < std::abs(x[kWidth]));
}

TEST_CASE("Scale multiplies by a number on the device") {
  auto ops = MakeCpuOps({.n_threads = 2});
  std::vector<float> x = RandomFloats(40001, 1), scaled = x;
  const float factor = 0.75f;
  ops->Scale(scaled.data(), static_cast<int64_t>(x.size()), &factor);
  for (float& value : x) value *= factor;
  CHECK(scaled == x);
}

TEST_CASE("SoftCap equals the reference wherever the row is split") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  auto ops = MakeCpuOpsFor(target, 2);
  auto reference = MakeReferenceOps();
  std::vector<float> x = RandomFloats(40001, 1, 60);
  x[0] = 0, x[1] = 1e-4f, x[2] = -1e9f;
  std::vector<float> expected = x, whole = x, part(x.begin() + 16385, x.begin() + 16400);
  reference->SoftCap(expected.data(), static_cast<int64_t>(x.size()), 30);
  ops->SoftCap(whole.data(), static_cast<int64_t>(x.size()), 30);
  ops->SoftCap(part.data(), 15, 30);
  CHECK(WorstError(whole, expected, 1e-6) < 2e-6);
  CHECK(SameBits(part.data(), whole.data() + 16385, 15));
}

TEST_CASE("GatherRows copies rows") {
  auto ops = MakeCpuOps({.n_threads = 2});
  const std::vector<float> x = RandomFloats(10 * 5000, 1);
  const std::vector<int32_t> rows = {9, 0, 3, 3, 7, 1, 2};
  std::vector<float> out(rows.size() * 5000);
  ops->GatherRows(
      {.x = x.data(), .rows = rows.data(), .out = out.data(), .n_rows = 7, .width = 5000});
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(SameBits(out.data() + i * 5000, x.data() + rows[i] * 5000, 5000));
  }
}

TEST_CASE("Convert equals the reference") {
  const DType type = GENERATE(DType::kBF16, DType::kF16);
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  const std::vector<float> x = RandomFloats(40001, 1, 60);
  std::vector<uint16_t> expected(x.size()), narrow(x.size() + 1, 7);
  reference->Convert(x.data(), {expected.data(), type}, 40001);
  ops->Convert(x.data(), {narrow.data(), type}, 40001);
  CHECK(narrow.back() == 7);
  narrow.pop_back();
  CHECK(narrow == expected);
  std::vector<float> wide(x.size()), expected_wide(x.size());
  reference->Convert({narrow.data(), type}, expected_wide.data(), 40001);
  ops->Convert({narrow.data(), type}, wide.data(), 40001);
  CHECK(wide == expected_wide);
}

TEST_CASE("Allocations are zeroed and aligned, and an allocation error names the size") {
  auto ops = MakeCpuOps({.n_threads = 1});
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{5} << 20}) {
    const Buffer buffer = *ops->Allocate(bytes);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data.get()) % 64 == 0);
    const char* const data = buffer.As<char>();
    CHECK(std::all_of(data, data + bytes, [](char c) { return c == 0; }));
  }
  const auto failure = ops->Allocate(size_t{1} << 60);
  CHECK(failure.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(failure.status().message()).find("1152921504606846976") != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::kernels
