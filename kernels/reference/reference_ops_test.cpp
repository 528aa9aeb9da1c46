// Hand-computed values for each op. Every other device is compared with this reference.
#include "kernels/reference/reference_ops.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

namespace stagecoach::kernels {
namespace {

using Catch::Approx;
using Floats = std::vector<float>;

Matrix Pack(Ops& ops, int32_t rows, int32_t cols, const Floats& values, DType dtype = DType::kF32) {
  Matrix matrix = *ops.NewMatrix(rows, cols, dtype);
  ops.PackRows(matrix, 0, rows, values.data(), DType::kF32);
  return matrix;
}

TEST_CASE("Gemm multiplies by the transposed weights") {
  auto ops = MakeReferenceOps();
  const Matrix w = Pack(*ops, 2, 3, {1, 2, 3, 4, 5, 6});
  const Floats x = {1, 0, -1, 2, 1, 0}, bias = {10, 20};
  Floats y(4, 1);
  ops->Gemm({.x = x.data(), .w = &w, .bias = nullptr, .y = y.data(), .n_rows = 2});
  CHECK(y == Floats{-2, -2, 4, 13});
  ops->Gemm(
      {.x = x.data(), .w = &w, .bias = bias.data(), .y = y.data(), .n_rows = 2, .add_to_y = true});
  CHECK(y == Floats{6, 16, 18, 46});
}

TEST_CASE("PackRows fills row ranges and rounds to the matrix's dtype") {
  auto ops = MakeReferenceOps();
  Matrix w = *ops->NewMatrix(3, 1, DType::kBF16);
  CHECK(ops->MatrixBytes(3, 1, DType::kBF16) == 6);
  const Floats top = {1.0f + 0x1p-9f}, rest = {2, 3};
  ops->PackRows(w, 0, 1, top.data(), DType::kF32);
  ops->PackRows(w, 1, 2, rest.data(), DType::kF32);
  const Floats x = {1};
  Floats y(3);
  ops->Gemm({.x = x.data(), .w = &w, .y = y.data(), .n_rows = 1});
  CHECK(y == Floats{1, 2, 3});
}

TEST_CASE("Embed scales tokens and adds positions") {
  auto ops = MakeReferenceOps();
  const Matrix table = Pack(*ops, 2, 2, {1, 2, 3, 4});
  const Matrix positions = Pack(*ops, 3, 2, {0, 0, 10, 20, 30, 40});
  const std::vector<int32_t> ids = {1, 0}, at = {0, 1};
  Floats out(4);
  ops->Embed({.ids = ids.data(), .table = &table, .scale = 2, .out = out.data(), .n_tokens = 2});
  CHECK(out == Floats{6, 8, 2, 4});
  ops->Embed({.ids = ids.data(),
              .table = &table,
              .scale = 1,
              .positions = at.data(),
              .position_table = &positions,
              .position_offset = 1,
              .out = out.data(),
              .n_tokens = 2});
  CHECK(out == Floats{13, 24, 31, 42});
}

TEST_CASE("Norms") {
  auto ops = MakeReferenceOps();
  const Floats x = {3, 1}, weight = {1, 2}, bias = {10, 20};
  Floats out = {100, 100};
  ops->Norm({.x = x.data(),
             .weight = weight.data(),
             .bias = bias.data(),
             .out = out.data(),
             .n_rows = 1,
             .width = 2,
             .kind = NormKind::kLayerNorm});
  CHECK(out == Floats{11, 18});
  const float rms = std::sqrt(5.0f);
  ops->Norm({.x = x.data(),
             .weight = weight.data(),
             .out = out.data(),
             .n_rows = 1,
             .width = 2,
             .kind = NormKind::kRms});
  CHECK(out[0] == Approx(3 / rms));
  CHECK(out[1] == Approx(2 / rms));
  out = {100, 100};
  ops->Norm({.x = x.data(),
             .weight = weight.data(),
             .out = out.data(),
             .n_rows = 1,
             .width = 2,
             .kind = NormKind::kRmsPlusOne,
             .add_to_out = true});
  CHECK(out[0] == Approx(100 + 6 / rms));
  CHECK(out[1] == Approx(100 + 3 / rms));
}

TEST_CASE("Activations") {
  auto ops = MakeReferenceOps();
  const Floats x = {1, -2};
  Floats out(2);
  const auto run = [&](Activation kind) {
    ops->Activate({.x = x.data(), .out = out.data(), .n_rows = 1, .width = 2, .kind = kind});
  };
  run(Activation::kRelu);
  CHECK(out == Floats{1, 0});
  run(Activation::kGelu);
  CHECK(out[0] == Approx(0.8413447));
  CHECK(out[1] == Approx(-0.0455003));
  run(Activation::kGeluTanh);
  CHECK(out[0] == Approx(0.8411920));
  run(Activation::kSilu);
  CHECK(out[0] == Approx(0.7310586));
  ops->Activate({.x = x.data(),
                 .out = out.data(),
                 .n_rows = 1,
                 .width = 1,
                 .kind = Activation::kRelu,
                 .gated = true});
  CHECK(out[0] == -2);
  ops->SoftCap(out.data(), 1, 4);
  CHECK(out[0] == Approx(4 * std::tanh(-0.5)));
}

TEST_CASE("Route and ExpertMlp") {
  auto ops = MakeReferenceOps();
  const Floats logits = {std::log(2.0f), 0, std::log(5.0f)};
  std::vector<int32_t> experts(2);
  Floats weights(2);
  RouteArgs route{.logits = logits.data(),
                  .experts = experts.data(),
                  .weights = weights.data(),
                  .n_tokens = 1,
                  .n_experts = 3,
                  .n_used = 2};
  ops->Route(route);
  CHECK(experts == std::vector<int32_t>{2, 0});
  CHECK(weights[0] == Approx(5.0 / 8));
  CHECK(weights[1] == Approx(2.0 / 8));
  route.over_used = true;
  ops->Route(route);
  CHECK(weights[0] == Approx(5.0 / 7));
  CHECK(weights[1] == Approx(2.0 / 7));

  // Three experts that multiply by 1, 10 and 100.
  std::vector<Matrix> up, down;
  for (const float scale : {1.0f, 10.0f, 100.0f}) {
    up.push_back(Pack(*ops, 2, 1, {1, scale}));
    down.push_back(Pack(*ops, 1, 1, {1}));
  }
  const Floats x = {2, -1}, factors = {0.5f, 0.25f, 1, 1};
  const std::vector<int32_t> chosen = {2, 0, 1, 2};
  Floats out = {3, 4};
  ops->ExpertMlp({.x = x.data(),
                  .experts = chosen.data(),
                  .weights = factors.data(),
                  .up = up,
                  .down = down,
                  .out = out.data(),
                  .scratch = nullptr,
                  .n_tokens = 2,
                  .n_used = 2,
                  .kind = Activation::kRelu});
  CHECK(out[0] == 3 + 0.25f * 4 + 0.5f * 400);  // relu(2) * 2 * scale
  CHECK(out[1] == 4);                           // relu(-1) is 0
}

TEST_CASE("RopeAppend and Attention") {
  auto ops = MakeReferenceOps();
  // One head of 2 values. Rotation is by position * 90 degrees. Attention reads block 1 of the
  // cache.
  const Floats cos = {1, 0}, sin = {0, 1};
  const RopeTable rope{cos.data(), sin.data(), 2};
  Floats qkv = {1, 0, 1, 0, 5, 6,   // q k v of position 0
                1, 0, 1, 0, 7, 8};  // position 1: q and k become (0, 1)
  Floats k(2 * 16 * 2), v(2 * 16 * 2);
  const std::vector<StepSeq> seqs = {{.slot = 1, .position = 0, .n_tokens = 2}};
  const std::vector<NewBlock> blocks = {{.group = 0, .slot = 1, .index = 0, .block = 1}};
  const auto step =
      *ops->NewStepInputs({.max_tokens = 4, .max_slots = 2, .max_blocks = 1, .groups = {{0}}});
  ops->BuildStep({.seqs = seqs, .new_blocks = blocks, .n_tokens = 2}, step.get());
  CHECK(std::vector<int32_t>(step->positions, step->positions + 2) == std::vector<int32_t>{0, 1});
  const KvLayer kv{k.data(), v.data(), DType::kF32};
  ops->RopeAppend({.qkv = qkv.data(),
                   .positions = step->positions,
                   .kv_slots = step->groups[0].kv_slots,
                   .rope = &rope,
                   .kv = kv,
                   .n_tokens = 2,
                   .n_heads = 1,
                   .n_kv_heads = 1,
                   .head_dim = 2});
  CHECK(qkv[6] == 0);
  CHECK(qkv[7] == 1);
  CHECK(k[32 + 0] == 1);
  CHECK(k[32 + 3] == 1);
  CHECK(v[32 + 2] == 7);

  Floats out(4);
  AttentionArgs args{.qkv = qkv.data(),
                     .kv = kv,
                     .step = step.get(),
                     .group = 0,
                     .out = out.data(),
                     .n_heads = 1,
                     .n_kv_heads = 1,
                     .head_dim = 2,
                     .scale = 1};
  ops->Attention(args);
  CHECK(out[0] == 5);  // position 0 sees only itself
  const double p = std::exp(1.0) / (1 + std::exp(1.0));
  CHECK(out[2] == Approx(5 * (1 - p) + 7 * p));
  args.softcap = 0.5f;
  ops->Attention(args);
  const double capped = std::exp(0.5 * std::tanh(2.0));
  CHECK(out[2] == Approx((5 + 7 * capped) / (1 + capped)));
  args.window = 1;
  ops->Attention(args);
  CHECK(out[2] == 7);
}

TEST_CASE("GatherRows and copies") {
  auto ops = MakeReferenceOps();
  const Floats x = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> rows = {2, 0};
  Floats out(4);
  ops->GatherRows({.x = x.data(), .rows = rows.data(), .out = out.data(), .n_rows = 2, .width = 2});
  CHECK(out == Floats{5, 6, 1, 2});
  ops->GatherRows({.x = x.data(), .rows = nullptr, .out = out.data(), .n_rows = 2, .width = 2});
  CHECK(out == Floats{1, 2, 3, 4});
  const Buffer buffer = *ops->Allocate(24);
  CHECK(buffer.As<float>()[5] == 0);
  ops->Upload(x.data(), buffer.data.get(), 24);
  ops->Download(buffer.As<float>() + 4, out.data(), 8);
  CHECK(out == Floats{5, 6, 3, 4});
  CHECK(ops->Synchronize().ok());
}

TEST_CASE("Convert rounds to nearest, ties to even") {
  auto ops = MakeReferenceOps();
  // One step of bfloat16 above 1 is 2^-7.
  const Floats x = {1, 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1p-8f + 0x1p-20f, -3.5f};
  std::vector<uint16_t> narrow(x.size());
  ops->Convert(x.data(), {narrow.data(), DType::kBF16}, 5);
  Floats wide(x.size());
  ops->Convert({narrow.data(), DType::kBF16}, wide.data(), 5);
  CHECK(wide == Floats{1, 1, 1 + 0x1p-6f, 1 + 0x1p-7f, -3.5f});
}

TEST_CASE("Route by sigmoid: the correction and the groups choose, the factor scales") {
  auto ops = MakeReferenceOps();
  // Groups {0, 1} and {2, 3}. Without groups, experts 0 and 2 would be the best.
  const float logits[] = {2, -3, 1, 0.5f}, correction[] = {0, 0, 0, 0.1f};
  int32_t experts[2];
  float weights[2];
  ops->Route({.logits = logits,
              .experts = experts,
              .weights = weights,
              .n_tokens = 1,
              .n_experts = 4,
              .n_used = 2,
              .over_used = true,
              .sigmoid = SigmoidRouting{.n_groups = 2, .n_used_groups = 1, .factor = 2},
              .correction = correction});
  CHECK((experts[0] == 2 && experts[1] == 3));
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(std::abs(weights[0] - 2 * sigmoid(1) / (sigmoid(1) + sigmoid(0.5))) < 1e-6);
}

TEST_CASE("A clamped activation") {
  auto ops = MakeReferenceOps();
  const float x[] = {5, -1, 0.5f, -4};  // two gates, two ups
  float out[2];
  ops->Activate({.x = x,
                 .out = out,
                 .n_rows = 1,
                 .width = 2,
                 .kind = Activation::kSilu,
                 .gated = true,
                 .clamped = {.limit = 2, .slope = 1.5f}});
  CHECK(std::abs(out[0] - 2 / (1 + std::exp(-3.0)) * 1.5) < 1e-6);
  CHECK(std::abs(out[1] - -1 / (1 + std::exp(1.5)) * (1 - 2)) < 1e-6);
}

}  // namespace
}  // namespace stagecoach::kernels
