// Checks that two forms of one real model give the same greedy tokens in bfloat16: `golden_test
// "[same]"` with STAGECOACH_GOLDEN_MODEL and STAGECOACH_GOLDEN_OTHER=MODEL (a .gguf file and the
// folder converted from it), and prompts from STAGECOACH_GOLDEN_FILE.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>

#include "kernels/cpu/cpu_ops.h"
#include "tests/golden/golden_data.h"
#include "tests/golden/pipeline_run.h"

namespace stagecoach {
namespace {

std::vector<int32_t> Greedy(PipelineRun& run, const std::vector<int32_t>& prompt, size_t n) {
  TestSequence sequence = run.NewSequence(prompt);
  std::vector<int32_t> ids;
  std::vector<float> logits = run.Prefill(&sequence, 512).back();
  while (ids.size() < n) {
    ids.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    sequence.ids.push_back(ids.back());
    logits = run.Prefill(&sequence, 1).back();
  }
  return ids;
}

TEST_CASE("two forms of one model", "[.][same]") {
  std::vector<std::vector<std::vector<int32_t>>> all;
  for (const char* variable : {"STAGECOACH_GOLDEN_MODEL", "STAGECOACH_GOLDEN_OTHER"}) {
    const char* const model = std::getenv(variable);
    const char* const file = std::getenv("STAGECOACH_GOLDEN_FILE");
    REQUIRE((model != nullptr && file != nullptr));
    const auto ops = kernels::MakeCpuOps({.n_threads = 2});
    auto run = PipelineRun::Load({.model_dir = model, .dtype = DType::kBF16, .max_model_len = 4096},
                                 ops.get());
    INFO(model << ": " << run.status());
    REQUIRE(run.ok());
    std::vector<std::vector<int32_t>> texts;
    for (const GoldenCase& golden : ReadGoldenFile(file)) {
      texts.push_back(Greedy(**run, golden.prompt_ids, golden.greedy_ids.size()));
    }
    all.push_back(std::move(texts));
  }
  for (size_t i = 0; i < all[0].size(); ++i) {
    INFO("prompt " << i);
    CHECK(all[0][i] == all[1][i]);
  }
}

}  // namespace
}  // namespace stagecoach
