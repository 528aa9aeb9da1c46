// Experts' MLPs against the reference, for few rows and many, even and skewed routing.
#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <random>

#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

struct Shape {
  int32_t n_experts, n_used, hidden, width;
};

enum class Routing { kEven, kSkewed };

// Skewed: every row has the first experts, in another order, so that others have no rows.
std::vector<int32_t> ChosenExperts(const Shape& shape, int32_t n_tokens, Routing routing) {
  std::mt19937 random(7);
  std::vector<int32_t> chosen;
  for (int32_t t = 0; t < n_tokens; ++t) {
    std::vector<int32_t> order(
        static_cast<size_t>(routing == Routing::kSkewed ? shape.n_used : shape.n_experts));
    for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
    std::shuffle(order.begin(), order.end(), random);
    chosen.insert(chosen.end(), order.begin(), order.begin() + shape.n_used);
  }
  return chosen;
}

// A layer of experts on a device, with the same weights on each.
class Layer {
 public:
  Layer(Ops& ops, const Shape& shape, DType dtype, bool gated = true)
      : ops_(ops), shape_(shape), dtype_(dtype), gated_(gated) {
    const int32_t up_rows = (gated ? 2 : 1) * shape.width;
    const size_t n = static_cast<size_t>(shape.hidden) * static_cast<size_t>(shape.width);
    const size_t n_up = static_cast<size_t>(shape.hidden) * static_cast<size_t>(up_rows);
    for (int32_t e = 0; e < shape.n_experts; ++e) {
      const auto seed = static_cast<uint32_t>(100 + 2 * e);
      up_.push_back(
          PackedMatrix(ops, up_rows, shape.hidden, dtype,
                       RandomFloats(n_up, seed, 1 / std::sqrt(static_cast<float>(shape.hidden)))));
      down_.push_back(
          PackedMatrix(ops, shape.hidden, shape.width, dtype,
                       RandomFloats(n, seed + 1, 1 / std::sqrt(static_cast<float>(shape.width)))));
    }
  }

  // Rows [first, first + n) of x and chosen.
  std::vector<float> Run(const std::vector<float>& x, const std::vector<int32_t>& chosen,
                         int32_t first, int32_t n, Activation kind = Activation::kSilu) {
    const auto part = [&](const auto& all, int32_t width) {
      return std::vector(all.begin() + int64_t{first} * width,
                         all.begin() + int64_t{first + n} * width);
    };
    const auto n_all = static_cast<int32_t>(x.size()) / shape_.hidden;
    const std::vector<float> weights =
        RandomFloats(static_cast<size_t>(n_all) * static_cast<size_t>(shape_.n_used), 5);
    const std::vector<float> before = RandomFloats(x.size(), 2);
    const Values in(ops_, part(x, shape_.hidden), dtype_), out(ops_, part(before, shape_.hidden));
    const Values of_pairs(ops_, part(weights, shape_.n_used));
    const Ids experts(ops_, part(chosen, shape_.n_used));
    const Buffer scratch = *ops_.Allocate(
        ops_.ExpertScratchBytes({n, shape_.n_experts, shape_.n_used, shape_.hidden, shape_.width}));
    ops_.ExpertMlp({.x = in,
                    .experts = experts.data(),
                    .weights = of_pairs.f32(),
                    .up = up_,
                    .down = down_,
                    .out = out.f32(),
                    .scratch = scratch.data.get(),
                    .n_tokens = n,
                    .n_used = shape_.n_used,
                    .kind = kind,
                    .gated = gated_});
    return out.Get();
  }

 private:
  Ops& ops_;
  const Shape shape_;
  const DType dtype_;
  const bool gated_;
  std::vector<Matrix> up_, down_;
};

std::vector<float> RandomRows(const Shape& shape, int32_t n_tokens, DType dtype) {
  return Rounded(RandomFloats(static_cast<size_t>(n_tokens) * static_cast<size_t>(shape.hidden), 1),
                 dtype);
}

TEST_CASE("ExpertMlp: few rows and many, some experts without any") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto reference = MakeReferenceOps(), ops = NewCudaOps();
  // Widths that tiles do not divide; few rows' pairs hardly share experts of the second shape.
  for (const Shape& shape : {Shape{4, 2, 128, 64}, Shape{40, 2, 64, 200}, Shape{5, 3, 192, 72}}) {
    Layer layer(*ops, shape, dtype), their_layer(*reference, shape, dtype);
    for (const Routing routing : {Routing::kEven, Routing::kSkewed}) {
      for (const int32_t n_tokens : {1, 5, 70}) {
        INFO(DTypeName(dtype) << " experts " << shape.n_experts << " tokens " << n_tokens);
        const std::vector<float> x = RandomRows(shape, n_tokens, dtype);
        const std::vector<int32_t> chosen = ChosenExperts(shape, n_tokens, routing);
        CHECK(WorstError(layer.Run(x, chosen, 0, n_tokens),
                         their_layer.Run(x, chosen, 0, n_tokens)) < 3 * Step(dtype));
      }
    }
  }
}

TEST_CASE("ExpertMlp: other activations") {
  constexpr Shape kShape{4, 2, 64, 64};
  const auto reference = MakeReferenceOps(), ops = NewCudaOps();
  Layer layer(*ops, kShape, DType::kBF16), their_layer(*reference, kShape, DType::kBF16);
  for (const Activation kind : {Activation::kGeluTanh, Activation::kGelu, Activation::kRelu}) {
    for (const int32_t n_tokens : {1, 20}) {
      const std::vector<float> x = RandomRows(kShape, n_tokens, DType::kBF16);
      const std::vector<int32_t> chosen = ChosenExperts(kShape, n_tokens, Routing::kEven);
      CHECK(WorstError(layer.Run(x, chosen, 0, n_tokens, kind),
                       their_layer.Run(x, chosen, 0, n_tokens, kind)) < 3 * Step(DType::kBF16));
    }
  }
}

TEST_CASE("ExpertMlp: without gates") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const auto reference = MakeReferenceOps(), ops = NewCudaOps();
  for (const Shape& shape : {Shape{12, 2, 64, 72}, Shape{5, 3, 33, 7}}) {
    Layer layer(*ops, shape, dtype, /*gated=*/false);
    Layer their_layer(*reference, shape, dtype, /*gated=*/false);
    constexpr Activation kKind = Activation::kReluSquared;
    for (const int32_t n_tokens : {1, 20}) {
      INFO(DTypeName(dtype) << " experts " << shape.n_experts << " tokens " << n_tokens);
      const std::vector<float> x = RandomRows(shape, n_tokens, dtype);
      const std::vector<int32_t> chosen = ChosenExperts(shape, n_tokens, Routing::kEven);
      // The square doubles the error of its input.
      CHECK(WorstError(layer.Run(x, chosen, 0, n_tokens, kKind),
                       their_layer.Run(x, chosen, 0, n_tokens, kKind)) <
            (dtype == DType::kF32 ? 1e-4 : 6 * Step(dtype)));
    }
  }
}

// Twice in a row, because the kernel for one row leaves a count behind.
void CheckNormRoute(Ops& ops, DType dtype, int32_t n_experts, int32_t n_rows, int32_t width) {
  const int32_t n_used = std::min(n_experts, 8);
  const Matrix router =
      PackedMatrix(ops, n_experts, width, dtype,
                   RandomFloats(static_cast<size_t>(n_experts) * static_cast<size_t>(width), 1,
                                1 / std::sqrt(static_cast<float>(width))));
  const Values weight(ops, RandomFloats(static_cast<size_t>(width), 2));
  const Values bias(ops, RandomFloats(static_cast<size_t>(n_experts), 3));
  const auto of_rows = [&](int32_t n) {
    return static_cast<size_t>(n_rows) * static_cast<size_t>(n);
  };
  for (const uint32_t seed : {10, 11}) {
    const Values x(ops, RandomFloats(of_rows(width), seed));
    std::vector<std::vector<float>> normed, weights;
    std::vector<std::vector<int32_t>> experts;
    for (const bool at_once : {false, true}) {
      const Values out(ops, std::vector<float>(of_rows(width), NAN), dtype);
      const Values logits(ops, std::vector<float>(of_rows(n_experts), NAN));
      const Values of_chosen(ops, std::vector<float>(of_rows(n_used), NAN));
      const Ids chosen(ops, std::vector<int32_t>(of_rows(n_used), -1));
      const NormArgs norm{.x = x,
                          .weight = weight.f32(),
                          .bias = nullptr,
                          .out = out,
                          .n_rows = n_rows,
                          .width = width,
                          .kind = NormKind::kRms,
                          .eps = 1e-6f,
                          .add_to_out = false};
      const GemmArgs gemm{
          .x = out, .w = &router, .bias = bias.f32(), .y = logits, .n_rows = n_rows};
      const RouteArgs route{.logits = logits.f32(),
                            .experts = chosen.data(),
                            .weights = of_chosen.f32(),
                            .n_tokens = n_rows,
                            .n_experts = n_experts,
                            .n_used = n_used,
                            .over_used = true};
      if (at_once) {
        ops.NormRoute(norm, gemm, route);
      } else {
        ops.Norm(norm);
        ops.Gemm(gemm);
        ops.Route(route);
      }
      normed.push_back(out.Get());
      weights.push_back(of_chosen.Get());
      experts.push_back(chosen.Get());
    }
    CHECK(experts[0] == experts[1]);
    CHECK(WorstError(weights[1], weights[0]) < 1e-3);
    CHECK(WorstError(normed[1], normed[0]) < Step(dtype));
  }
}

TEST_CASE("NormRoute chooses the experts that Norm, Gemm and Route choose") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto ops = NewCudaOps();
  for (const int32_t n_experts : {4, 60, 128, 250}) {
    CheckNormRoute(*ops, dtype, n_experts, /*n_rows=*/1, /*width=*/1048);
    CheckNormRoute(*ops, dtype, n_experts, /*n_rows=*/3, /*width=*/64);
    CheckNormRoute(*ops, dtype, n_experts, /*n_rows=*/1, /*width=*/64);
  }
}

TEST_CASE("ExpertMlp: batch-invariant rows have the same bits in every batch") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  constexpr Shape kShape{6, 2, 64, 64};
  constexpr int32_t kTokens = 150;
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  Layer layer(*ops, kShape, dtype);
  const std::vector<float> x = RandomRows(kShape, kTokens, dtype);
  for (const Routing routing : {Routing::kEven, Routing::kSkewed}) {
    const std::vector<int32_t> chosen = ChosenExperts(kShape, kTokens, routing);
    const std::vector<float> together = layer.Run(x, chosen, 0, kTokens);
    for (const auto& [first, n] : {std::pair{0, 1}, {149, 1}, {3, 2}, {20, 17}, {64, 60}}) {
      INFO("rows from " << first << ", " << n);
      const std::vector<float> some = layer.Run(x, chosen, first, n);
      CHECK(std::memcmp(some.data(), together.data() + int64_t{first} * kShape.hidden,
                        some.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
