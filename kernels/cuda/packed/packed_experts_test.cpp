// Experts whose weights stay quantized, against the reference.
#include "kernels/cuda/packed/packed_experts.h"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <random>

#include "kernels/cuda/testing/device_values.h"
#include "kernels/cuda/testing/ops_stream.h"
#include "kernels/cuda/testing/relative_error.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

using enum Code;

struct Form {
  Encoding gate, up, down;
  int32_t hidden, width;
};

// Gate and up of one encoding are one part, else two.
std::vector<Form> Forms() {
  const Encoding int4 = Grouped(kInt4, DType::kF16, 128, true);
  return {{MxFp4Encoding(), MxFp4Encoding(), MxFp4Encoding(), 96, 64},
          {int4, int4, Grouped(kInt8, DType::kBF16, 32), 128, 64},
          {Fp8Blocks(), Fp8Blocks(), Fp8Blocks(), 128, 128},
          {kQ4_K, kQ6_K, kQ6_K, 256, 256}};
}

constexpr int32_t kExperts = 3, kUsed = 2;

// A layer of experts on a device, with the same weights on each.
struct Layer {
  Layer(Ops& ops, const Form& form) : ops(ops), hidden(form.hidden), width(form.width) {
    for (uint32_t e = 0; e < kExperts; ++e) {
      up.push_back(PackParts(
          ops, RandomParts({{width, form.gate}, {width, form.up}}, hidden, 10 * e), hidden));
      down.push_back(PackParts(ops, RandomParts({{hidden, form.down}}, width, 10 * e + 5), width));
    }
  }

  Ops& ops;
  const int32_t hidden, width;
  std::vector<Matrix> up, down;
};

// The choices of a call's rows. Even rows do not choose the last expert; if is_skewed, no row does.
struct Rows {
  explicit Rows(int32_t n, bool is_skewed = false) : n(n) {
    std::mt19937 random(3);
    for (int32_t t = 0; t < n; ++t) {
      const int32_t n_chosen = is_skewed || t % 2 == 0 ? kExperts - 1 : kExperts;
      const auto first = static_cast<int32_t>(random() % static_cast<uint32_t>(n_chosen));
      experts.push_back(first);
      experts.push_back((first + 1) % n_chosen);
    }
  }

  const int32_t n;
  std::vector<int32_t> experts;
};

using RunExperts = std::function<void(const ExpertMlpArgs&)>;

// with_biases: also clamped activations, as in gpt-oss.
std::vector<float> Run(const Layer& layer, const Rows& rows, DType dtype, const RunExperts& run,
                       bool with_biases = false) {
  Ops& ops = layer.ops;
  const auto n_values = static_cast<size_t>(rows.n) * static_cast<size_t>(layer.hidden);
  const Values x(ops, Rounded(RandomFloats(n_values, 1), dtype), dtype);
  const Values weights(ops, RandomFloats(rows.experts.size(), 2)),
      out(ops, RandomFloats(n_values, 4));
  const Values up_bias(ops, RandomFloats(static_cast<size_t>(kExperts * 2 * layer.width), 5));
  const Values down_bias(ops, RandomFloats(static_cast<size_t>(kExperts * layer.hidden), 6));
  const Ids experts(ops, rows.experts);
  const Buffer scratch =
      *ops.Allocate(ops.ExpertScratchBytes({rows.n, kExperts, kUsed, layer.hidden, layer.width}));
  ExpertMlpArgs args{.x = x,
                     .experts = experts.data(),
                     .weights = weights.f32(),
                     .up = layer.up,
                     .down = layer.down,
                     .out = out.f32(),
                     .scratch = scratch.data.get(),
                     .n_tokens = rows.n,
                     .n_used = kUsed,
                     .kind = Activation::kSilu};
  if (with_biases) {
    args.clamped = {.limit = 7, .slope = 1.702f};
    args.up_bias = up_bias.f32();
    args.down_bias = down_bias.f32();
  }
  run(args);
  return out.Get();
}
std::vector<float> Run(const Layer& layer, const Rows& rows, DType dtype,
                       bool with_biases = false) {
  const auto run = [&](const ExpertMlpArgs& args) { layer.ops.ExpertMlp(args); };
  return Run(layer, rows, dtype, run, with_biases);
}

// More rows than this expand the weights.
constexpr int32_t kMostPackedTokens = cuda::PackedExperts::kMostPackedRows * kExperts / kUsed;

TEST_CASE("Packed experts equal the reference's") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  for (const Form& form : Forms()) {
    const Layer ours(*ops, form), theirs(*reference, form);
    for (const int32_t n : {1, 8, 9, 50, kMostPackedTokens + 1}) {
      // The larger products take long on an emulated GPU.
      if (n > 9 && (dtype == DType::kF16 || form.hidden == 256)) continue;
      const bool with_biases = n != 50;
      INFO(DTypeName(dtype) << " " << EncodingName(form.gate) << " rows " << n);
      const Rows rows(n, /*is_skewed=*/n == 50);
      CHECK(RelativeError(Run(ours, rows, dtype, with_biases),
                          Run(theirs, rows, dtype, with_biases)) <
            (dtype == DType::kBF16 ? 1e-2 : 2e-3));
    }
  }
}

TEST_CASE("Packed experts in float32 equal the reference's") {
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  for (const Form& form : Forms()) {
    const Layer ours(*ops, form), theirs(*reference, form);
    for (const int32_t n : {1, 21}) {
      INFO(EncodingName(form.gate) << " rows " << n);
      CHECK(RelativeError(Run(ours, Rows(n), DType::kF32), Run(theirs, Rows(n), DType::kF32)) <
            1e-5);
    }
  }
}

TEST_CASE("Packed experts: weights are expanded some experts at a time") {
  const auto ops = NewCudaOps();
  const cuda::Stream stream = StreamOf(*ops, 1000);
  cuda::PackedMatrices matrices(&stream, /*batch_invariant=*/false);
  cuda::ExpertTables tables(&stream, [&](const void* host, void* device, size_t bytes) {
    ops->Upload(host, device, bytes);
    return absl::OkStatus();
  });
  const Rows rows(kMostPackedTokens + 1, GENERATE(false, true));
  Form form = Forms().front();
  form.up = kQ8_0;  // two parts
  const Layer layer(*ops, form);
  const std::vector<float> at_once = Run(layer, rows, DType::kBF16);
  for (const int32_t n_together : {1, 2}) {
    INFO(n_together << " experts at a time");
    cuda::PackedExperts experts(
        &stream, &matrices, &tables, /*batch_invariant=*/false,
        int64_t{n_together} * 2 * form.width * form.hidden * int64_t{sizeof(uint16_t)});
    const auto run = [&](const ExpertMlpArgs& args) { REQUIRE(experts.Run(args).ok()); };
    CHECK(RelativeError(Run(layer, rows, DType::kBF16, run), at_once) < 1e-6);
  }
}

TEST_CASE("Packed experts: in batch-invariant mode a row does not depend on other rows") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  for (const Form& form : Forms()) {
    INFO(EncodingName(form.gate));
    const Layer layer(*ops, form);
    const std::vector<float> all = Run(layer, Rows(40), dtype);
    for (const int32_t n : {1, 5, 33}) {
      const std::vector<float> some = Run(layer, Rows(n), dtype);
      CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("Experts of which only one matrix is packed equal the reference's") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  const bool up_is_packed = GENERATE(true, false);
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  const Form form = Forms().front();
  const auto layer_on = [&](Ops& on) {
    Layer layer(on, form);
    std::vector<Matrix>& plain = up_is_packed ? layer.down : layer.up;
    for (uint32_t e = 0; e < kExperts; ++e) {
      const int32_t rows = plain[e].rows, cols = plain[e].cols;
      const auto n = static_cast<size_t>(rows) * static_cast<size_t>(cols);
      plain[e] = PackedMatrix(on, rows, cols, dtype, Rounded(RandomFloats(n, e, 0.1f), dtype));
    }
    return layer;
  };
  const Layer ours = layer_on(*ops), theirs = layer_on(*reference);
  for (const int32_t n : {1, 9, kMostPackedTokens + 1}) {
    INFO(DTypeName(dtype) << " up is packed " << up_is_packed << " rows " << n);
    CHECK(RelativeError(Run(ours, Rows(n), dtype), Run(theirs, Rows(n), dtype)) <
          (dtype == DType::kBF16 ? 1e-2 : 1e-5));
  }
}

TEST_CASE("Packed experts that differ in their encodings are refused") {
  const auto ops = NewCudaOps();
  Form form = Forms().front();
  Layer layer(*ops, form);
  form.down = kQ8_0;
  const Layer other(*ops, form);
  layer.down.back() = other.down.back();
  Run(layer, Rows(1), DType::kBF16, [&](const ExpertMlpArgs& args) {
    ops->ExpertMlp(args);
    CHECK(absl::IsUnimplemented(ops->Synchronize()));
  });
}

TEST_CASE("Experts that stay quantized") {
  CHECK(cuda::KeepsPackedExperts(MxFp4Encoding(), 2880));
  CHECK(cuda::KeepsPackedExperts(Fp8Blocks(), 2048));
  CHECK(!cuda::KeepsPackedExperts(kFp8, 2048));
  Encoding permuted = Grouped(kInt4, DType::kF16, 128);
  permuted.is_permuted = true;
  CHECK(!cuda::KeepsPackedExperts(permuted, 2048));
}

}  // namespace
}  // namespace stagecoach::kernels
