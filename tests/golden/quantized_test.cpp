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
// If two experts are almost equal, rounding can choose another one. References in bfloat16 are off
// by 0.044 and 0.074 (Mistral Small 4) and more.
constexpr Rounding kRoundedInputsOfExperts{.logits = 2e-2, .prompt_logprobs = 3e-2};

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
        CheckRounding(
            model.name + " as stored, " + backend.name, RoundingOf(**run, model.cases),
            (*run)->spec().experts.n_experts > 0 ? kRoundedInputsOfExperts : kRoundedInputs);
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
