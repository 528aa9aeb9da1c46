// Captured decode steps, and the cache that they are captured beside.
#include <catch2/catch_test_macros.hpp>

#include "tests/golden/golden_backends.h"
#include "tests/golden/golden_data.h"
#include "tests/golden/pipeline_run.h"
#include "worker/model/decode_sizes.h"

namespace stagecoach {
namespace {

// Runs a step of each size that is captured later: a kernel must run before its capture.
void RunEverySize(PipelineRun& run) {
  for (const int32_t size : worker::DecodeSizes(PipelineRun::kMaxSequences)) {
    std::vector<TestSequence> sequences;
    std::vector<PipelineRun::Chunk> chunks;
    for (int32_t i = 0; i < size; ++i) sequences.push_back(run.NewSequence({i}));
    for (TestSequence& sequence : sequences) chunks.push_back({&sequence, 1});
    run.Step(chunks);
  }
}

// Logits of some decodes after a prompt. prepares: captures decode steps after the prompt, when the
// cache holds its keys and values.
std::vector<std::vector<float>> Decodes(const GoldenModel& model, kernels::Ops* ops,
                                        bool prepares) {
  auto run =
      PipelineRun::Load({.model_dir = model.model_dir, .n_stages = 2, .n_blocks = 1024}, ops);
  REQUIRE(run.ok());
  RunEverySize(**run);
  const GoldenCase& golden = model.cases.front();
  TestSequence sequence = (*run)->NewSequence(golden.prompt_ids);
  (*run)->Prefill(&sequence, 512);
  if (prepares) REQUIRE((*run)->Prepare().ok());
  std::vector<std::vector<float>> logits;
  for (int i = 0; i < 4; ++i) {
    sequence.ids.push_back(golden.greedy_ids[static_cast<size_t>(i)]);
    logits.push_back((*run)->Prefill(&sequence, 1).front());
  }
  return logits;
}

TEST_CASE("Captured steps give the same bits, and their capture leaves the cache as it is") {
  for (const Backend& backend : SameBitsBackends()) {
    const std::vector<GoldenModel> models = FindGoldenModels(STAGECOACH_GOLDEN_DATA);
    for (size_t i = 0; i < models.size(); i += 4) {
      if (!BackendsCanRun(models[i])) continue;
      INFO(backend.name << ", " << models[i].model_dir);
      CHECK(Decodes(models[i], backend.ops.get(), true) ==
            Decodes(models[i], backend.ops.get(), false));
    }
  }
}

}  // namespace
}  // namespace stagecoach
