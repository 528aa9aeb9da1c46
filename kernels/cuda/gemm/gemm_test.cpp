// GEMMs and mixture-of-experts layers, compared with the reference.
#include <catch2/generators/catch_generators_range.hpp>
#include <cstring>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

const DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

struct Shape {
  int32_t rows, cols;
};

struct Product {
  Product(Ops& ops, const Shape& shape, DType dtype, int32_t n_rows, bool to_float)
      : ops(ops),
        w(PackedMatrix(ops, shape.rows, shape.cols, dtype,
                       RandomFloats(static_cast<size_t>(shape.rows) * shape.cols, 1,
                                    1 / std::sqrt(static_cast<float>(shape.cols))))),
        x(ops, Rounded(RandomFloats(static_cast<size_t>(n_rows) * shape.cols, 2), dtype), dtype),
        y(ops, RandomFloats(static_cast<size_t>(n_rows) * shape.rows, 3),
          to_float ? DType::kF32 : dtype),
        bias(ops, RandomFloats(shape.rows, 4)) {}

  std::vector<float> Run(int32_t n_rows, bool with_bias, bool add_to_y) {
    ops.Gemm({.x = x,
              .w = &w,
              .bias = with_bias ? bias.f32() : nullptr,
              .y = y,
              .n_rows = n_rows,
              .add_to_y = add_to_y});
    return y.Get();
  }

  Ops& ops;
  Matrix w;
  Values x, y, bias;
};

TEST_CASE("Gemm: row counts, shapes, dtypes, bias, addition to the output") {
  const DType dtype = GENERATE(from_range(kTypes));
  const Shape shape =
      GENERATE(Shape{48, 64}, Shape{100, 1056}, Shape{17, 24}, Shape{1, 2048}, Shape{1, 36});
  const bool to_float = GENERATE(false, true);
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps();
  for (const int32_t n_rows : {1, 2, 7, 8, 9, 16, 17, 40}) {
    if (n_rows > 9 && shape.cols > 1000) continue;
    for (const bool with_bias : {false, true}) {
      INFO(DTypeName(dtype) << " " << shape.rows << " x " << shape.cols << " rows " << n_rows
                            << " bias " << with_bias);
      Product mine(*ops, shape, dtype, n_rows, to_float);
      Product theirs(*reference, shape, dtype, n_rows, to_float);
      const bool adds = to_float && with_bias;
      CHECK(WorstError(mine.Run(n_rows, with_bias, adds), theirs.Run(n_rows, with_bias, adds)) <
            (to_float ? 1e-4 : Step(dtype)));
    }
  }
}

TEST_CASE("GemmActivate: kinds, gated and not, few rows and many") {
  const DType dtype = GENERATE(from_range(kTypes));
  const Activation kind = GENERATE(Activation::kGeluTanh, Activation::kSilu);
  const bool gated = GENERATE(false, true);
  const int32_t width = GENERATE(7, 40), cols = GENERATE(64, 3232);
  for (const int32_t n_rows : {1, 3, 4, 5, 9}) {
    if (n_rows > 1 && cols > 1000) continue;
    INFO(DTypeName(dtype) << " gated " << gated << " width " << width << " rows " << n_rows);
    std::vector<std::vector<float>> results;
    for (const bool on_gpu : {false, true}) {
      const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
      Product product(*ops, {gated ? 2 * width : width, cols}, dtype, n_rows, /*to_float=*/false);
      const Values out(*ops, std::vector<float>(static_cast<size_t>(n_rows * width), NAN), dtype);
      ops->GemmActivate(
          {.x = product.x, .w = &product.w, .bias = nullptr, .y = product.y, .n_rows = n_rows},
          {.x = product.y,
           .out = out,
           .n_rows = n_rows,
           .width = width,
           .kind = kind,
           .gated = gated});
      results.push_back(out.Get());
    }
    CHECK(WorstError(results[1], results[0]) < 2 * Step(dtype));
  }
}

TEST_CASE("SkinnyGemm: the same bits on a GPU with less shared memory per CTA") {
  const auto ops = NewCudaOps();
  const auto handle = static_cast<cudaStream_t>(ops->native_queue().stream);
  constexpr int32_t kRows = 200, kCols = 5152;
  for (const int32_t n_rows : {1, 12}) {
    std::vector<std::vector<float>> results;
    for (const size_t shared_bytes : {size_t{227} << 10, size_t{99} << 10}) {
      const cuda::Stream stream{
          .handle = handle, .n_multiprocessors = 2, .block_shared_bytes = shared_bytes};
      const Product product(*ops, {kRows, kCols}, DType::kBF16, n_rows, /*to_float=*/true);
      REQUIRE(cuda::SkinnyGemm(stream, {.x = product.x,
                                        .w = &product.w,
                                        .bias = nullptr,
                                        .y = product.y,
                                        .n_rows = n_rows,
                                        .add_to_y = false}) == cudaSuccess);
      results.push_back(product.y.Get());
    }
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("NormGemm, NormGemmActivate: kinds, few rows and many") {
  const DType dtype = GENERATE(from_range(kTypes));
  const NormKind kind = GENERATE(NormKind::kRms, NormKind::kRmsPlusOne, NormKind::kLayerNorm);
  const int32_t cols = GENERATE(24, 64, 1056, 4096);
  const bool activates = GENERATE(false, true);
  constexpr int32_t kRows = 304, kWidth = kRows / 2;
  for (const int32_t n_rows : {1, 2, 4, 5}) {
    if (n_rows % 4 != 1 && cols > 64) continue;
    INFO(DTypeName(dtype) << " cols " << cols << " rows " << n_rows << " activates " << activates);
    const size_t n = static_cast<size_t>(n_rows);
    std::vector<std::vector<float>> results;
    for (const bool on_gpu : {false, true}) {
      const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
      Product product(*ops, {kRows, cols}, dtype, n_rows, /*to_float=*/false);
      const Values hidden(*ops, RandomFloats(n * cols, 5, 3.0f)),
          weight(*ops, RandomFloats(cols, 6)), bias(*ops, RandomFloats(cols, 7)),
          out(*ops, std::vector<float>(n * kWidth, NAN), dtype);
      const NormArgs norm{.x = hidden,
                          .weight = weight.f32(),
                          .bias = kind == NormKind::kLayerNorm ? bias.f32() : nullptr,
                          .out = product.x,
                          .n_rows = n_rows,
                          .width = cols,
                          .kind = kind,
                          .eps = 1e-5f,
                          .add_to_out = false};
      const GemmArgs gemm{.x = product.x,
                          .w = &product.w,
                          .bias = nullptr,
                          .y = product.y,
                          .n_rows = n_rows,
                          .add_to_y = false};
      if (activates) {
        ops->NormGemmActivate(norm, gemm,
                              {.x = product.y,
                               .out = out,
                               .n_rows = n_rows,
                               .width = kWidth,
                               .kind = Activation::kSilu,
                               .gated = true});
      } else {
        ops->NormGemm(norm, gemm);
      }
      results.push_back(activates ? out.Get() : product.y.Get());
    }
    CHECK(WorstError(results[1], results[0]) < 3 * Step(dtype));
  }
}

TEST_CASE("Gemm: in batch-invariant mode a row does not depend on other rows") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  const bool adds = GENERATE(false, true);  // with a bias and accumulation into y
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  const auto run = [&](int32_t n_rows) {
    return Product(*ops, {200, 512}, dtype, 300, true).Run(n_rows, adds, adds);
  };
  REQUIRE(ops->Rehearse(true).ok());
  for (const int32_t n_rows : {300, 64, 16, 1}) run(n_rows);
  REQUIRE(ops->Rehearse(false).ok());
  const std::vector<float> all = run(300);
  for (const int32_t n_rows : {1, 5, 16, 33, 100, 257}) {
    CHECK(std::memcmp(run(n_rows).data(), all.data(), sizeof(float) * 200 * n_rows) == 0);
  }
}

TEST_CASE("PackRows: parts of a matrix, with rounding") {
  const DType dtype = GENERATE(from_range(kTypes));
  const auto ops = NewCudaOps();
  Matrix matrix = *ops->NewMatrix(5, 3, dtype);
  const std::vector<float> values = RandomFloats(15, 1);
  const std::vector<float> rounded = Rounded(values, dtype);
  std::vector<unsigned char> stored(15 * DTypeBytes(dtype));
  for (size_t i = 0; i < 15; ++i) StoreElement(stored.data(), dtype, i, values[i]);
  ops->PackRows(matrix, 0, 2, values.data(), DType::kF32);
  ops->PackRows(matrix, 2, 3, stored.data() + 6 * DTypeBytes(dtype), dtype);
  const Values identity(*ops, {1, 0, 0, 0, 1, 0, 0, 0, 1}, dtype);
  const Values y(*ops, std::vector<float>(15));
  ops->Gemm({.x = identity, .w = &matrix, .y = y, .n_rows = 3});
  const std::vector<float> transposed = y.Get();
  for (size_t i = 0; i < 15; ++i) CHECK(transposed[i % 3 * 5 + i / 3] == rounded[i]);
}

TEST_CASE("Route equals the reference, with ties and NaN among the logits") {
  const int32_t n_experts = GENERATE(1, 4, 60, 128, 200, 300), n_tokens = GENERATE(1, 50);
  const bool over_used = GENERATE(false, true);
  std::vector<float> logits = RandomFloats(static_cast<size_t>(n_experts * n_tokens), 1, 2.0f);
  for (float& logit : logits) logit = std::round(logit * 8) / 8;
  if (n_experts >= 4) logits[1] = NAN;
  for (const int32_t n_used : {1, 2, 8}) {
    if (n_used > n_experts) continue;
    std::vector<std::vector<int32_t>> experts;
    std::vector<std::vector<float>> weights;
    for (const bool on_gpu : {false, true}) {
      const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
      const Values in(*ops, logits), out(*ops, std::vector<float>(n_tokens * n_used, NAN));
      const Ids chosen(*ops, std::vector<int32_t>(n_tokens * n_used, -1));
      ops->Route({.logits = in.f32(),
                  .experts = chosen.data(),
                  .weights = out.f32(),
                  .n_tokens = n_tokens,
                  .n_experts = n_experts,
                  .n_used = n_used,
                  .over_used = over_used});
      experts.push_back(chosen.Get());
      weights.push_back(out.Get());
    }
    CHECK(experts[0] == experts[1]);
    CHECK(WorstError(weights[1], weights[0]) < 1e-6);
  }
}

TEST_CASE("Route by softmax equals the reference, with groups and a factor") {
  struct Shape {
    int32_t n_experts, n_used, n_groups, n_used_groups;
  };
  const Shape shape = GENERATE(Shape{6, 2, 2, 1}, Shape{160, 6, 8, 3}, Shape{64, 6, 1, 1},
                               Shape{256, 32, 32, 4}, Shape{300, 2, 1, 1});
  constexpr int32_t kTokens = 30;
  std::vector<float> logits = RandomFloats(static_cast<size_t>(shape.n_experts * kTokens), 1, 2.0f);
  for (float& logit : logits) logit = std::round(logit * 8) / 8;  // ties of experts and of groups
  logits[1] = NAN;
  std::vector<std::vector<int32_t>> experts;
  std::vector<std::vector<float>> weights;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Values in(*ops, logits), out(*ops, std::vector<float>(kTokens * shape.n_used, NAN));
    const Ids chosen(*ops, std::vector<int32_t>(kTokens * shape.n_used, -1));
    ops->Route(
        {.logits = in.f32(),
         .experts = chosen.data(),
         .weights = out.f32(),
         .n_tokens = kTokens,
         .n_experts = shape.n_experts,
         .n_used = shape.n_used,
         .over_used = false,
         .softmax_groups = {
             .n_groups = shape.n_groups, .n_used_groups = shape.n_used_groups, .factor = 16}});
    experts.push_back(chosen.Get());
    weights.push_back(out.Get());
  }
  CHECK(experts[0] == experts[1]);
  CHECK(WorstError(weights[1], weights[0]) < 1e-5);
}

TEST_CASE("Route by sigmoid equals the reference, with corrections and groups") {
  struct Shape {
    int32_t n_experts, n_used, n_groups, n_used_groups;
  };
  const Shape shape =
      GENERATE(Shape{1, 1, 1, 1}, Shape{60, 8, 1, 1}, Shape{64, 6, 8, 3}, Shape{256, 8, 8, 4});
  const bool over_used = GENERATE(false, true), corrects = GENERATE(false, true);
  constexpr int32_t kTokens = 30;
  std::vector<float> logits = RandomFloats(static_cast<size_t>(shape.n_experts * kTokens), 1, 2.0f);
  if (shape.n_experts > 1) logits[1] = NAN;
  std::vector<std::vector<int32_t>> experts;
  std::vector<std::vector<float>> weights;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    const Values in(*ops, logits), correction(*ops, RandomFloats(shape.n_experts, 2, 0.2f));
    const Values out(*ops, std::vector<float>(kTokens * shape.n_used, NAN));
    const Ids chosen(*ops, std::vector<int32_t>(kTokens * shape.n_used, -1));
    ops->Route({.logits = in.f32(),
                .experts = chosen.data(),
                .weights = out.f32(),
                .n_tokens = kTokens,
                .n_experts = shape.n_experts,
                .n_used = shape.n_used,
                .over_used = over_used,
                .sigmoid = SigmoidRouting{.n_groups = shape.n_groups,
                                          .n_used_groups = shape.n_used_groups,
                                          .factor = 2.5f},
                .correction = corrects ? correction.f32() : nullptr});
    experts.push_back(chosen.Get());
    weights.push_back(out.Get());
  }
  CHECK(experts[0] == experts[1]);
  CHECK(WorstError(weights[1], weights[0]) < 1e-6);
}

TEST_CASE("ExpertMlp equals the reference, plain or with biases and clamped activations") {
  const DType dtype = GENERATE(from_range(kTypes));
  const bool is_plain = GENERATE(true, false);
  struct Experts {
    int32_t n_experts, n_used, hidden, width;
  };
  const Experts shape = GENERATE(Experts{8, 2, 64, 96}, Experts{5, 3, 33, 7}, Experts{1, 1, 32, 32},
                                 Experts{70, 3, 32, 32});  // more groups than run concurrently
  constexpr int32_t kTokens = 41;
  std::mt19937 random(3);
  std::vector<int32_t> chosen;
  for (int32_t t = 0; t < kTokens; ++t) {
    std::vector<int32_t> order(shape.n_experts);
    for (int32_t e = 0; e < shape.n_experts; ++e) order[e] = e;
    std::shuffle(order.begin(), order.end(), random);
    chosen.insert(chosen.end(), order.begin(), order.begin() + shape.n_used);
  }
  const std::vector<float> x = Rounded(RandomFloats(kTokens * shape.hidden, 1), dtype);
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    std::vector<Matrix> up, down;
    for (int32_t e = 0; e < shape.n_experts; ++e) {
      const size_t n = static_cast<size_t>(shape.hidden) * shape.width;
      const float up_deviation = 1 / std::sqrt(static_cast<float>(shape.hidden));
      const float down_deviation = 1 / std::sqrt(static_cast<float>(shape.width));
      const uint32_t seed = 10 + 2 * static_cast<uint32_t>(e);
      up.push_back(PackedMatrix(*ops, 2 * shape.width, shape.hidden, dtype,
                                RandomFloats(2 * n, seed, up_deviation)));
      down.push_back(PackedMatrix(*ops, shape.hidden, shape.width, dtype,
                                  RandomFloats(n, seed + 1, down_deviation)));
    }
    const Values in(*ops, x, dtype), out(*ops, RandomFloats(kTokens * shape.hidden, 2));
    const Values weights(*ops, RandomFloats(kTokens * shape.n_used, 5));
    const Ids experts(*ops, chosen);
    const Values up_bias(*ops, RandomFloats(shape.n_experts * 2 * shape.width, 6));
    const Values down_bias(*ops, RandomFloats(shape.n_experts * shape.hidden, 7));
    const Buffer scratch = *ops->Allocate(ops->ExpertScratchBytes(
        {kTokens, shape.n_experts, shape.n_used, shape.hidden, shape.width}));
    ops->ExpertMlp({.x = in,
                    .experts = experts.data(),
                    .weights = weights.f32(),
                    .up = up,
                    .down = down,
                    .out = out.f32(),
                    .scratch = scratch.data.get(),
                    .n_tokens = kTokens,
                    .n_used = shape.n_used,
                    .kind = Activation::kSilu,
                    .clamped = is_plain ? ClampedGlu{} : ClampedGlu{.limit = 1.2f, .slope = 1.7f},
                    .up_bias = is_plain ? nullptr : up_bias.f32(),
                    .down_bias = is_plain ? nullptr : down_bias.f32()});
    results.push_back(out.Get());
  }
  CHECK(WorstError(results[1], results[0]) < (dtype == DType::kF32 ? 1e-5 : 3 * Step(dtype)));
}

TEST_CASE("ExpertMlp: sets of experts with the same first expert are told apart") {
  constexpr int32_t kHidden = 32, kWidth = 16;
  const std::vector<float> x = RandomFloats(kHidden, 1);
  std::vector<std::vector<float>> results;
  for (const bool on_gpu : {false, true}) {
    const auto ops = on_gpu ? NewCudaOps() : MakeReferenceOps();
    std::vector<Matrix> up, down;
    for (uint32_t e = 0; e < 3; ++e) {
      up.push_back(PackedMatrix(*ops, 2 * kWidth, kHidden, DType::kF32,
                                RandomFloats(2 * kWidth * kHidden, 2 * e + 2, 0.2f)));
      down.push_back(PackedMatrix(*ops, kHidden, kWidth, DType::kF32,
                                  RandomFloats(kHidden * kWidth, 2 * e + 3, 0.2f)));
    }
    const Values in(*ops, x), out(*ops, std::vector<float>(kHidden, 0));
    const Values weights(*ops, {0.25f, 0.75f});
    const Ids experts(*ops, {0, 1});
    const Buffer scratch = *ops->Allocate(ops->ExpertScratchBytes({1, 2, 2, kHidden, kWidth}));
    for (const size_t second : {1, 2}) {
      const std::vector<Matrix> some_up = {up[0], up[second]}, some_down = {down[0], down[second]};
      ops->ExpertMlp({.x = in,
                      .experts = experts.data(),
                      .weights = weights.f32(),
                      .up = some_up,
                      .down = some_down,
                      .out = out.f32(),
                      .scratch = scratch.data.get(),
                      .n_tokens = 1,
                      .n_used = 2,
                      .kind = Activation::kSilu});
    }
    results.push_back(out.Get());
  }
  CHECK(WorstError(results[1], results[0]) < 1e-5);
}

}  // namespace
}  // namespace stagecoach::kernels
