// Experts whose weights stay quantized, against the reference.
#include "kernels/cuda/packed/packed_experts.h"

#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "kernels/cuda/testing/expert_layers.h"
#include "kernels/cuda/testing/ops_stream.h"
#include "kernels/cuda/testing/relative_error.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {
namespace {

using enum Code;

// Gate and up of one encoding are one part, else two.
std::vector<ExpertForm> Forms() {
  const Encoding int4 = Grouped(kInt4, DType::kF16, 128, true);
  return {{MxFp4Encoding(), MxFp4Encoding(), MxFp4Encoding(), 96, 64},
          {int4, int4, Grouped(kInt8, DType::kBF16, 32), 128, 64},
          {Fp8Blocks(), Fp8Blocks(), Fp8Blocks(), 128, 128},
          {kFp8, kFp8, Fp8Tensor(), 128, 64},
          {kQ4_K, kQ6_K, kQ6_K, 256, 256}};
}

// More rows than this expand the weights.
constexpr int32_t kMostPackedTokens = cuda::kMostPackedRowsOfExpert * kExperts / kUsed;

TEST_CASE("Packed experts equal the reference's") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  for (const ExpertForm& form : Forms()) {
    const ExpertLayer ours(*ops, form), theirs(*reference, form);
    for (const int32_t n : {1, 8, 9, 50, kMostPackedTokens + 1}) {
      // The larger products take long on an emulated GPU.
      if (n > 9 && (dtype == DType::kF16 || form.hidden == 256)) continue;
      const bool with_biases = n != 50;
      INFO(DTypeName(dtype) << " " << EncodingName(form.gate) << " rows " << n);
      const ExpertRows rows(n, /*is_skewed=*/n == 50);
      CHECK(RelativeError(RunExperts(ours, rows, dtype, with_biases),
                          RunExperts(theirs, rows, dtype, with_biases)) <
            (dtype == DType::kBF16 ? 1e-2 : 2e-3));
    }
  }
}

TEST_CASE("Packed experts in float32 equal the reference's") {
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  for (const ExpertForm& form : Forms()) {
    const ExpertLayer ours(*ops, form), theirs(*reference, form);
    for (const int32_t n : {1, 21}) {
      INFO(EncodingName(form.gate) << " rows " << n);
      CHECK(RelativeError(RunExperts(ours, ExpertRows(n), DType::kF32),
                          RunExperts(theirs, ExpertRows(n), DType::kF32)) < 1e-5);
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
  const ExpertRows rows(kMostPackedTokens + 1, GENERATE(false, true));
  ExpertForm form = Forms().front();
  form.up = kQ8_0;  // two parts
  const ExpertLayer layer(*ops, form);
  const std::vector<float> at_once = RunExperts(layer, rows, DType::kBF16);
  for (const int32_t n_together : {1, 2}) {
    INFO(n_together << " experts at a time");
    cuda::PackedExperts experts(
        &stream, &matrices, &tables, /*batch_invariant=*/false,
        int64_t{n_together} * 2 * form.width * form.hidden * int64_t{sizeof(uint16_t)});
    const auto run = [&](const ExpertMlpArgs& args) { REQUIRE(experts.Run(args).ok()); };
    CHECK(RelativeError(RunExperts(layer, rows, DType::kBF16, run), at_once) < 1e-6);
  }
}

TEST_CASE("Packed experts: in batch-invariant mode a row does not depend on other rows") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  const auto ops = NewCudaOps(/*batch_invariant=*/true);
  for (const ExpertForm& form : Forms()) {
    INFO(EncodingName(form.gate));
    const ExpertLayer layer(*ops, form);
    const std::vector<float> all = RunExperts(layer, ExpertRows(40), dtype);
    for (const int32_t n : {1, 5, 33}) {
      const std::vector<float> some = RunExperts(layer, ExpertRows(n), dtype);
      CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("Experts of which only one matrix is packed equal the reference's") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  const bool up_is_packed = GENERATE(true, false);
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  const ExpertForm form = Forms().front();
  const auto layer_on = [&](Ops& on) {
    ExpertLayer layer(on, form);
    std::vector<Matrix>& plain = up_is_packed ? layer.down : layer.up;
    for (uint32_t e = 0; e < kExperts; ++e) {
      const int32_t rows = plain[e].rows, cols = plain[e].cols;
      const auto n = static_cast<size_t>(rows) * static_cast<size_t>(cols);
      plain[e] = PackedMatrix(on, rows, cols, dtype, Rounded(RandomFloats(n, e, 0.1f), dtype));
    }
    return layer;
  };
  const ExpertLayer ours = layer_on(*ops), theirs = layer_on(*reference);
  for (const int32_t n : {1, 9, kMostPackedTokens + 1}) {
    INFO(DTypeName(dtype) << " up is packed " << up_is_packed << " rows " << n);
    CHECK(RelativeError(RunExperts(ours, ExpertRows(n), dtype),
                        RunExperts(theirs, ExpertRows(n), dtype)) <
          (dtype == DType::kBF16 ? 1e-2 : 1e-5));
  }
}

TEST_CASE("Packed experts that differ in their encodings are refused") {
  const auto ops = NewCudaOps();
  ExpertForm form = Forms().front();
  ExpertLayer layer(*ops, form);
  form.down = kQ8_0;
  const ExpertLayer other(*ops, form);
  layer.down.back() = other.down.back();
  RunExperts(layer, ExpertRows(1), DType::kBF16, [&](const ExpertMlpArgs& args) {
    ops->ExpertMlp(args);
    CHECK(absl::IsUnimplemented(ops->Synchronize()));
  });
}

}  // namespace
}  // namespace stagecoach::kernels
