// Memory-bound operations, compared with the reference.
#include <catch2/generators/catch_generators_range.hpp>

#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

const DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST_CASE("small and large copies arrive complete") {
  const auto ops = NewCudaOps();
  for (const size_t n : {size_t{1}, size_t{1000}, (size_t{34} << 20) / 4}) {
    const std::vector<float> values = RandomFloats(n, 1);
    CHECK(Values(*ops, values).Get() == values);
  }
  const Buffer zeros = *ops->Allocate(4096);
  std::vector<float> values(1024, 1);
  ops->Download(zeros.data.get(), values.data(), 4096);
  CHECK(values == std::vector<float>(1024, 0));
}

TEST_CASE("a mark reports when all work queued before it is done") {
  const auto ops = NewCudaOps();
  CHECK(ops->runs_ahead());
  const std::vector<float> values = RandomFloats(1000, 1);
  const Values on_device(*ops, values);
  const Buffer host = *ops->AllocateHost(4000);
  ops->DownloadLater(Act(on_device).data, host.data.get(), 4000);
  REQUIRE(ops->Wait(ops->Mark()).ok());
  CHECK(std::vector<float>(host.As<float>(), host.As<float>() + 1000) == values);
}

TEST_CASE("Embed: tokens, positions and both, every dtype, odd widths") {
  const DType dtype = GENERATE(from_range(kTypes));
  const int32_t width = GENERATE(3, 24, 64);
  const bool to_float = GENERATE(false, true);
  const std::vector<int32_t> ids = {4, 0, 6, 4}, at = {0, 3, 1, 2};
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Matrix table = PackedMatrix(*ops, 7, width, dtype, RandomFloats(7 * width, 1));
    const Matrix positions = PackedMatrix(*ops, 6, width, dtype, RandomFloats(6 * width, 2));
    const Ids token_ids(*ops, ids), token_positions(*ops, at);
    const Values out(*ops, std::vector<float>(4 * width, NAN), to_float ? DType::kF32 : dtype);
    EmbedArgs args{.ids = token_ids.data(),
                   .table = &table,
                   .scale = 1.5f,
                   .positions = token_positions.data(),
                   .position_table = nullptr,
                   .position_offset = 2,
                   .out = out,
                   .n_tokens = 4};
    ops->Embed(args);
    results.push_back(out.Get());
    args.position_table = &positions;
    ops->Embed(args);
    results.push_back(out.Get());
    args.table = nullptr;
    ops->Embed(args);
    results.push_back(out.Get());
  }
  const double step = to_float ? 1e-6 : Step(dtype);
  for (size_t i = 0; i < 3; ++i) CHECK(WorstError(results[i + 3], results[i]) < step);
}

TEST_CASE("GatherRows: rows in any order, or the first rows") {
  const DType dtype = GENERATE(from_range(kTypes));
  const int32_t width = GENERATE(5, 64);
  const auto ops = NewCudaOps();
  const std::vector<float> x = RandomFloats(6 * width, 1);
  const Values from(*ops, x), out(*ops, std::vector<float>(3 * width, NAN), dtype);
  const Ids rows(*ops, {5, 0, 3});
  std::vector<float> expected;
  for (const int32_t row : {5, 0, 3}) {
    expected.insert(expected.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
  }
  ops->GatherRows({.x = from.f32(), .rows = rows.data(), .out = out, .n_rows = 3, .width = width});
  CHECK(out.Get() == Rounded(expected, dtype));
  ops->GatherRows({.x = from.f32(), .rows = nullptr, .out = out, .n_rows = 3, .width = width});
  CHECK(out.Get() == Rounded({x.begin(), x.begin() + 3 * width}, dtype));

  const Values same_type(*ops, x, dtype);
  ops->GatherRows({.x = same_type, .rows = rows.data(), .out = out, .n_rows = 3, .width = width});
  CHECK(out.Get() == Rounded(expected, dtype));
}

TEST_CASE("Convert: every pair of types, with a rest, and from a place that is not aligned") {
  const DType from = GENERATE(from_range(kTypes)), to = GENERATE(from_range(kTypes));
  const int64_t n = GENERATE(1, 8, 4099);
  const int64_t skipped = GENERATE(0, 1);
  const auto ops = NewCudaOps();
  const std::vector<float> x = Rounded(RandomFloats(static_cast<size_t>(n + skipped), 1), from);
  const Values source(*ops, x, from), target(*ops, std::vector<float>(x.size(), 7), to);
  const char* const begin = static_cast<const char*>(ConstAct(source).data);
  ops->Convert({begin + skipped * static_cast<int64_t>(DTypeBytes(from)), from}, target, n);
  std::vector<float> expected = Rounded({x.begin() + skipped, x.end()}, to);
  expected.resize(x.size(), 7);  // nothing is written behind the values
  CHECK(target.Get() == expected);
}

TEST_CASE("Norm: kinds, widths, float32 input and output") {
  const NormKind kind = GENERATE(NormKind::kLayerNorm, NormKind::kRms, NormKind::kRmsPlusOne);
  const int32_t width = GENERATE(1, 6, 64, 100, 640, 4096, 5120);
  const DType dtype = GENERATE(from_range(kTypes));
  const bool from_float = GENERATE(false, true);
  const int32_t rows = width > 1000 ? 2 : 5;
  const size_t n = static_cast<size_t>(rows * width);
  const std::vector<float> x = Rounded(RandomFloats(n, 1), dtype);
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Values weight(*ops, RandomFloats(width, 2)), bias(*ops, RandomFloats(width, 3));
    const Values in(*ops, x, from_float ? DType::kF32 : dtype);
    const Values out(*ops, RandomFloats(n, 4), from_float ? dtype : DType::kF32);
    ops->Norm({.x = in,
               .weight = weight.f32(),
               .bias = kind == NormKind::kLayerNorm ? bias.f32() : nullptr,
               .out = out,
               .n_rows = rows,
               .width = width,
               .kind = kind,
               .eps = 1e-5f,
               .add_to_out = !from_float});
    results.push_back(out.Get());
  }
  CHECK(WorstError(results[1], results[0], 0.1) < (from_float ? Step(dtype) : 1e-4));
}

TEST_CASE("Activations: gated and not gated") {
  const Activation kind = GENERATE(Activation::kRelu, Activation::kReluSquared, Activation::kGelu,
                                   Activation::kGeluTanh, Activation::kSilu);
  const DType dtype = GENERATE(from_range(kTypes));
  const bool gated = GENERATE(false, true);
  const int32_t width = GENERATE(3, 200);
  const std::vector<float> x =
      Rounded(RandomFloats(static_cast<size_t>(4 * width) * (gated ? 2 : 1), 1, 4.0f), dtype);
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Values in(*ops, x, dtype), out(*ops, std::vector<float>(4 * width, NAN), dtype);
    ops->Activate({.x = in, .out = out, .n_rows = 4, .width = width, .kind = kind, .gated = gated});
    results.push_back(out.Get());
  }
  CHECK(WorstError(results[1], results[0], 0.1) < Step(dtype));
}

TEST_CASE("Activations: times numbers of the row") {
  const DType dtype = GENERATE(from_range(kTypes));
  const int32_t width = GENERATE(3, 200);
  const int64_t stride = 3 * width + 4;
  const std::vector<float> x =
      Rounded(RandomFloats(static_cast<size_t>(4 * width), 1, 4.0f), dtype);
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Values in_place(*ops, x, dtype);
    const Values up(*ops, RandomFloats(static_cast<size_t>(4 * stride), 2));
    ops->Activate({.x = in_place,
                   .out = in_place,
                   .n_rows = 4,
                   .width = width,
                   .kind = Activation::kGeluTanh,
                   .gated = false,
                   .up = up.f32() + width,
                   .up_stride = stride});
    results.push_back(in_place.Get());
  }
  CHECK(WorstError(results[1], results[0], 0.1) < Step(dtype));
}

TEST_CASE("Activations: clamped") {
  const DType dtype = GENERATE(from_range(kTypes));
  const int32_t width = GENERATE(3, 200);
  const std::vector<float> x =
      Rounded(RandomFloats(static_cast<size_t>(4 * width) * 2, 1, 4.0f), dtype);
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Values in(*ops, x, dtype), out(*ops, std::vector<float>(4 * width, NAN), dtype);
    ops->Activate({.x = in,
                   .out = out,
                   .n_rows = 4,
                   .width = width,
                   .kind = Activation::kSilu,
                   .gated = true,
                   .clamped = {.limit = 3, .slope = 1.7f}});
    results.push_back(out.Get());
  }
  CHECK(WorstError(results[1], results[0], 0.1) < Step(dtype));
}

TEST_CASE("SoftCap") {
  const auto ops = NewCudaOps();
  const Values x(*ops, {-100, -1, 0, 0.5f, 30});
  ops->SoftCap(x.f32(), 5, 30);
  const std::vector<float> capped = x.Get();
  CHECK(WorstError(capped, {30 * std::tanh(-100 / 30.0f), 30 * std::tanh(-1 / 30.0f), 0,
                            30 * std::tanh(0.5f / 30), 30 * std::tanh(1.0f)}) < 1e-6);
}

TEST_CASE("Scale") {
  const auto ops = NewCudaOps();
  const Values x(*ops, {-100, 0, 0.5f}), factor(*ops, {0.25f});
  ops->Scale(x.f32(), 3, factor.f32());
  CHECK(x.Get() == std::vector<float>{-25, 0, 0.125f});
}

}  // namespace
}  // namespace stagecoach::kernels
