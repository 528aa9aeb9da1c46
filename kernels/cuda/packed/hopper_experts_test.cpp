// Experts with packed weights on Hopper: every form and tile against the reference.
#include "kernels/cuda/packed/hopper_experts.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "kernels/cuda/packed/packed_experts.h"
#include "kernels/cuda/testing/expert_layers.h"
#include "kernels/cuda/testing/ops_stream.h"
#include "kernels/cuda/testing/relative_error.h"

namespace stagecoach::kernels {
namespace {

using enum Code;

// Every kind of code and scale. Inputs are not whole blocks, outputs not whole tiles.
const std::vector<ExpertForm>& Forms() {
  static const std::vector<ExpertForm> forms = [] {
    std::vector<ExpertForm> some = {{kQ4_K, kQ4_K, kQ6_K, 512, 256},
                                    {kQ5_K, kQ5_K, kIQ4_XS, 512, 256},
                                    {kQ6_K, kQ6_K, kQ4_K, 256, 256},
                                    {kQ4_0, kQ4_0, kQ5_0, 192, 192},
                                    {kQ8_0, kQ8_0, kIQ4_NL, 320, 64},
                                    {NvFp4Encoding(), NvFp4Encoding(), MxFp4Encoding(), 448, 320}};
    for (const Encoding& encoding :
         {MxFp4Encoding(), Grouped(kInt4, DType::kBF16, 32), Grouped(kInt8, DType::kF16, 32)}) {
      some.push_back({encoding, encoding, encoding, 320, 192});
    }
    for (const Encoding& encoding :
         {Grouped(kInt4, DType::kF16, 128, true), Grouped(kInt4, DType::kBF16, 0),
          Grouped(kInt8, DType::kBF16, 128), Fp8Blocks(), Encoding(kFp8), Fp8Tensor()}) {
      some.push_back({encoding, encoding, encoding, 384, 128});
    }
    // Scales of 2 and more, which no published model has.
    some.push_back({MxFp4Encoding(), MxFp4Encoding(), MxFp4Encoding(), 576, 320, /*raised=*/11});
    return some;
  }();
  return forms;
}

// For each tile: rows per expert on average are 2/3 of these.
constexpr int32_t kRows[] = {11, 40, 300};

bool Suit(const cuda::Stream& stream, const ExpertForm& form) {
  return cuda::SuitsHopperExperts(stream, cuda::PackedPartOf(form.up, 2 * form.width, form.hidden),
                                  /*gated=*/true) &&
         cuda::SuitsHopperExperts(stream, cuda::PackedPartOf(form.down, form.hidden, form.width),
                                  /*gated=*/false);
}

TEST_CASE("Packed experts on Hopper equal the reference's") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  const cuda::Stream stream = StreamOf(*ops, 1000);
  if (!Suit(stream, Forms().front())) return;
  for (const ExpertForm& form : Forms()) {
    REQUIRE(Suit(stream, form));
    if (form.raised != 0 && dtype == DType::kF16) continue;  // too large for it
    const ExpertLayer ours(*ops, form), theirs(*reference, form);
    for (const int32_t n : kRows) {
      for (const bool with_biases : {false, true}) {
        INFO(DTypeName(dtype) << " " << EncodingName(form.up) << ", " << EncodingName(form.down)
                              << " rows " << n << " biases " << with_biases);
        const ExpertRows rows(n, /*is_skewed=*/n == 40);
        CHECK(RelativeError(RunExperts(ours, rows, dtype, with_biases),
                            RunExperts(theirs, rows, dtype, with_biases)) <
              (dtype == DType::kBF16 ? 1e-2 : 2e-3));
      }
    }
  }
}

TEST_CASE("Packed experts on Hopper: blocks that do not fit into shared memory go another way") {
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  const Encoding encoding = Grouped(kInt8, DType::kF32, 32);
  const ExpertForm form{encoding, encoding, encoding, 256, 128};
  CHECK(!Suit(StreamOf(*ops, 1000), form));
  const ExpertLayer ours(*ops, form), theirs(*reference, form);
  const ExpertRows rows(40);
  CHECK(RelativeError(RunExperts(ours, rows, DType::kBF16),
                      RunExperts(theirs, rows, DType::kBF16)) < 1e-2);
}

TEST_CASE("Packed experts on Hopper: a row does not depend on other rows, nor on the tile") {
  const auto ops = NewCudaOps();
  if (!Suit(StreamOf(*ops, 1000), Forms().front())) return;
  for (const ExpertForm& form : Forms()) {
    INFO(EncodingName(form.up) << ", " << EncodingName(form.down));
    const ExpertLayer layer(*ops, form);
    const std::vector<float> all = RunExperts(layer, ExpertRows(300), DType::kBF16);
    for (const int32_t n : {11, 40}) {
      const std::vector<float> some = RunExperts(layer, ExpertRows(n), DType::kBF16);
      CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace
}  // namespace stagecoach::kernels
