// Models whose weights stay quantized, against transformers with the float32 values of the same
// weights (see make_quantized.py). golden_test.cpp compares them expanded, and over stages.
#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "kernels/cpu/kernel_test_util.h"
#include "tests/golden/golden_backends.h"
#include "tests/golden/golden_compare.h"

namespace stagecoach {
namespace {

// Between a third and a half of the reference's own errors in bfloat16, for models of these
// architectures. The models' other weights are bfloat16, for which some backends round the inputs.
constexpr Rounding kRoundedInputs{.logits = 4e-3, .prompt_logprobs = 4e-3};
// Rounding chooses another expert, where two are almost equal. The reference of gpt-oss (mxfp4) in
// bfloat16 is off by 0.29 and 0.16.
constexpr Rounding kOtherExperts{.logits = 1e-2, .prompt_logprobs = 1e-2};
// The same for fp8-experts with AMX, which rounds the inputs of FP8 weights, too. Its reference in
// bfloat16 is off by 0.044 and 0.074.
constexpr Rounding kOtherFp8Experts{.logits = 2e-2, .prompt_logprobs = 3e-2};

Rounding RoundingBound(const std::string& model, const kernels::Ops& ops) {
  if (kernels::RoundsInputs(ops, Code::kFp8)) {
    if (model == "fp8-experts") return kOtherFp8Experts;
    if (model == "fp8-latent") return kOtherExperts;
  }
  return model == "mxfp4" || model == "modelopt" ? kOtherExperts : kRoundedInputs;
}

TEST_CASE("weights that stay quantized give the results of their values") {
  std::vector<GoldenModel> models = FindGoldenModels(STAGECOACH_GOLDEN_DATA "/quantized");
  std::erase_if(models, [](const GoldenModel& model) { return !BackendsCanRun(model); });
  REQUIRE(models.size() >= 11);
  std::vector<Backend> backends = SameBitsBackends();
  for (Backend& backend : Backends()) backends.push_back(std::move(backend));
  for (const Backend& backend : backends) {
    for (const GoldenModel& model : models) {
      auto run = PipelineRun::Load({.model_dir = model.model_dir}, backend.ops.get());
      INFO(model.name << " on " << backend.name << ": " << run.status());
      REQUIRE(run.ok());
      if (kernels::RoundsInputs(*backend.ops)) {
        CheckRounding(model.name + " as stored, " + backend.name, RoundingOf(**run, model.cases),
                      RoundingBound(model.name, *backend.ops));
        continue;
      }
      CheckWithinTolerance(model.name + " as stored, " + backend.name,
                           CompareWithGolden(**run, model.cases, 512, backend.tolerance),
                           backend.tolerance);
    }
  }
}

}  // namespace
}  // namespace stagecoach
