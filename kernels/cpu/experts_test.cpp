#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <limits>

#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Routed Route(Ops& ops, const std::vector<float>& logits, int32_t n_experts, int32_t n_used,
             bool over_used) {
  const int32_t n_tokens = static_cast<int32_t>(logits.size()) / n_experts;
  Routed routed;
  routed.experts.resize(static_cast<size_t>(n_tokens * n_used), -1);
  routed.weights.resize(routed.experts.size(), NAN);
  ops.Route({.logits = logits.data(),
             .experts = routed.experts.data(),
             .weights = routed.weights.data(),
             .n_tokens = n_tokens,
             .n_experts = n_experts,
             .n_used = n_used,
             .over_used = over_used});
  REQUIRE(ops.Synchronize().ok());
  return routed;
}

TEST_CASE("Route equals the reference, with ties and NaN among the logits") {
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  const int32_t n_experts = GENERATE(1, 4, 60, 128), n_tokens = GENERATE(1, 300);
  const bool over_used = GENERATE(false, true);
  std::vector<float> logits = RandomFloats(static_cast<size_t>(n_experts * n_tokens), 1, 2.0f);
  for (float& logit : logits) logit = std::round(logit * 8) / 8;
  for (const int32_t n_used : {1, 2, 8}) {
    if (n_used > n_experts) continue;
    const Routed mine = Route(*ops, logits, n_experts, n_used, over_used);
    const Routed theirs = Route(*reference, logits, n_experts, n_used, over_used);
    CHECK(mine.experts == theirs.experts);
    CHECK(WorstError(mine.weights, theirs.weights) < 1e-6);
  }
  if (n_experts < 4) return;
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> odd = {NAN, 1, NAN, 2};
  CHECK(Route(*ops, odd, 4, 3, true).experts == std::vector<int32_t>{3, 1, 0});
  CHECK(Route(*reference, odd, 4, 3, true).experts == std::vector<int32_t>{3, 1, 0});
  CHECK(Route(*ops, {NAN, NAN, -inf, NAN}, 4, 2, true).experts == std::vector<int32_t>{0, 1});
}

TEST_CASE("Route multiplies weights by the experts' numbers") {
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  constexpr int32_t kExperts = 6, kUsed = 2;
  const std::vector<float> logits = RandomFloats(kExperts * 40, 1, 2.0f);
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  const Routed plain = Route(*ops, logits, kExperts, kUsed, true);
  for (Ops* const device : {ops.get(), reference.get()}) {
    Routed routed = plain;
    device->Route({.logits = logits.data(),
                   .experts = routed.experts.data(),
                   .weights = routed.weights.data(),
                   .n_tokens = 40,
                   .n_experts = kExperts,
                   .n_used = kUsed,
                   .over_used = true,
                   .expert_scales = scales.data()});
    CHECK(routed.experts == plain.experts);
    for (size_t i = 0; i < plain.weights.size(); ++i) {
      routed.weights[i] /= scales[static_cast<size_t>(plain.experts[i])];
    }
    CHECK(WorstError(routed.weights, plain.weights) < 1e-6);
  }
}

TEST_CASE("Route by sigmoid equals the reference, with groups and a correction") {
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  const int32_t n_experts = 16, n_used = 3, n_tokens = 300;
  const SigmoidRouting routing = GENERATE(SigmoidRouting{}, SigmoidRouting{8, 2, 2.5f},
                                          SigmoidRouting{4, 3, 1.0f}, SigmoidRouting{4, 4, 1.0f});
  const bool over_used = GENERATE(false, true), has_correction = GENERATE(false, true);
  std::vector<float> logits = RandomFloats(static_cast<size_t>(n_experts * n_tokens), 1, 2.0f);
  logits[5] = NAN;
  const std::vector<float> correction = RandomFloats(n_experts, 2, 0.5f);
  const auto route = [&](Ops& device) {
    Routed routed;
    routed.experts.resize(static_cast<size_t>(n_tokens * n_used), -1);
    routed.weights.resize(routed.experts.size(), NAN);
    device.Route({.logits = logits.data(),
                  .experts = routed.experts.data(),
                  .weights = routed.weights.data(),
                  .n_tokens = n_tokens,
                  .n_experts = n_experts,
                  .n_used = n_used,
                  .over_used = over_used,
                  .sigmoid = routing,
                  .correction = has_correction ? correction.data() : nullptr});
    REQUIRE(device.Synchronize().ok());
    return routed;
  };
  const Routed mine = route(*ops), theirs = route(*reference);
  CHECK(mine.experts == theirs.experts);
  CHECK(WorstError(mine.weights, theirs.weights) < 1e-6);
}

TEST_CASE("Route by softmax takes experts of the best groups only, with a factor") {
  auto ops = MakeCpuOps({.n_threads = 2});
  auto reference = MakeReferenceOps();
  constexpr int32_t kExperts = 6, kUsed = 2;
  // The second group has the largest logit, the first one the largest sum.
  const std::vector<float> logits = {1, 1, 1, 2, -3, -4};
  const auto route = [&](Ops& device) {
    Routed routed{.experts = std::vector<int32_t>(kUsed), .weights = std::vector<float>(kUsed)};
    device.Route({.logits = logits.data(),
                  .experts = routed.experts.data(),
                  .weights = routed.weights.data(),
                  .n_tokens = 1,
                  .n_experts = kExperts,
                  .n_used = kUsed,
                  .over_used = false,
                  .softmax_groups = {.n_groups = 2, .n_used_groups = 1, .factor = 16}});
    REQUIRE(device.Synchronize().ok());
    return routed;
  };
  const Routed mine = route(*ops), theirs = route(*reference);
  CHECK(mine.experts == std::vector<int32_t>{3, 4});
  CHECK(theirs.experts == mine.experts);
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  CHECK(std::abs(mine.weights[0] - 16 * std::exp(2.0) / total) < 1e-5);
  CHECK(WorstError(mine.weights, theirs.weights) < 1e-6);
}

struct Shape {
  int32_t n_experts, n_used, hidden, width;
};

// The experts of a layer on one device.
class Layer {
 public:
  // is_clamped: with biases and ClampedGlu.
  Layer(Ops& ops, const Shape& shape, DType dtype, bool is_clamped, bool gated = true)
      : ops_(ops), shape_(shape), is_clamped_(is_clamped), gated_(gated) {
    const int32_t up_rows = (gated ? 2 : 1) * shape.width;
    const auto all = [&](int32_t width) { return static_cast<size_t>(shape.n_experts * width); };
    up_bias_ = RandomFloats(all(up_rows), 7);
    down_bias_ = RandomFloats(all(shape.hidden), 8);
    const size_t n = static_cast<size_t>(shape.hidden) * shape.width;
    for (int32_t e = 0; e < shape.n_experts; ++e) {
      const uint32_t seed = 10 + 2 * static_cast<uint32_t>(e);
      up_.push_back(PackedMatrix(
          ops, up_rows, shape.hidden, dtype,
          RandomFloats((gated ? 2 : 1) * n, seed, 1 / std::sqrt(float(shape.hidden)))));
      down_.push_back(PackedMatrix(ops, shape.hidden, shape.width, dtype,
                                   RandomFloats(n, seed + 1, 1 / std::sqrt(float(shape.width)))));
    }
  }

  // Processes rows [first, first + n) of x and adds the result to `out`, which has n rows.
  std::vector<float> Run(const std::vector<float>& x, const Routed& routed, std::vector<float> out,
                         size_t first, size_t n) {
    const int32_t n_tokens = static_cast<int32_t>(n);
    const Buffer scratch = *ops_.Allocate(ops_.ExpertScratchBytes(
        {n_tokens, shape_.n_experts, shape_.n_used, shape_.hidden, shape_.width}));
    ops_.ExpertMlp({.x = x.data() + first * shape_.hidden,
                    .experts = routed.experts.data() + first * shape_.n_used,
                    .weights = routed.weights.data() + first * shape_.n_used,
                    .up = up_,
                    .down = down_,
                    .out = out.data(),
                    .scratch = scratch.data.get(),
                    .n_tokens = n_tokens,
                    .n_used = shape_.n_used,
                    .kind = Activation::kSilu,
                    .clamped = {.limit = is_clamped_ ? 0.7f : 0.0f, .slope = 1.7f},
                    .up_bias = is_clamped_ ? up_bias_.data() : nullptr,
                    .down_bias = is_clamped_ ? down_bias_.data() : nullptr,
                    .gated = gated_});
    REQUIRE(ops_.Synchronize().ok());
    return out;
  }

 private:
  Ops& ops_;
  const Shape shape_;
  const bool is_clamped_, gated_;
  std::vector<Matrix> up_, down_;
  std::vector<float> up_bias_, down_bias_;
};

TEST_CASE("ExpertMlp equals the reference and does not depend on rows or threads") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const Shape shape = GENERATE(Shape{8, 2, 64, 48}, Shape{5, 3, 33, 7}, Shape{1, 1, 16, 16});
  const bool is_clamped = GENERATE(false, true), gated = GENERATE(true, false);
  if (is_clamped && !gated) return;
  INFO(target << " " << DTypeName(dtype) << " hidden " << shape.hidden);
  auto one_thread = MakeCpuOpsFor(target, 1);
  auto threads = MakeCpuOpsFor(target, 3);
  auto reference = MakeReferenceOps();
  constexpr size_t kRows = 60;
  const size_t hidden = static_cast<size_t>(shape.hidden);
  const std::vector<float> x = RandomFloats(kRows * hidden, 1);
  const std::vector<float> out = RandomFloats(kRows * hidden, 2);
  const Routed routed =
      Route(*reference, RandomFloats(kRows * static_cast<size_t>(shape.n_experts), 3),
            shape.n_experts, shape.n_used, true);
  Layer mine(*threads, shape, dtype, is_clamped, gated);
  Layer alone(*one_thread, shape, dtype, is_clamped, gated);
  Layer theirs(*reference, shape, dtype, is_clamped, gated);
  const std::vector<float> whole = mine.Run(x, routed, out, 0, kRows);
  // The inputs of the second product are results of the first one, and get rounded, too.
  const bool rounds = RoundsInputs(*threads, CodeOf(dtype));
  const std::vector<float> expected =
      theirs.Run(RoundedInputs(*threads, CodeOf(dtype), x), routed, out, 0, kRows);
  CHECK(WorstError(whole, expected) < (rounds ? 5e-3 : 5e-6));
  for (const size_t n : {size_t{1}, size_t{7}, size_t{20}}) {
    for (size_t first = 0; first < kRows; first += n) {
      const size_t rows = std::min(n, kRows - first);
      const std::vector<float> old(out.begin() + static_cast<long>(first * hidden),
                                   out.begin() + static_cast<long>((first + rows) * hidden));
      const std::vector<float> part = alone.Run(x, routed, old, first, rows);
      REQUIRE(SameBits(part.data(), whole.data() + first * hidden, rows * hidden));
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
