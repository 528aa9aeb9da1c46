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

// Logits of some decodes after prompts: one alone, then three side by side, which a captured step
// pads to four. prepares: captures decode steps after the prompts, when the cache holds their keys
// and values.
std::vector<std::vector<float>> Decodes(const GoldenModel& model, int32_t n_stages,
                                        kernels::Ops* ops, bool prepares) {
  auto run = PipelineRun::Load(
      {.model_dir = model.model_dir, .n_stages = n_stages, .n_blocks = 1024}, ops);
  REQUIRE(run.ok());
  RunEverySize(**run);
  std::vector<TestSequence> sequences;
  for (size_t s = 0; s < 3; ++s) {
    sequences.push_back((*run)->NewSequence(model.cases[s].prompt_ids));
    (*run)->Prefill(&sequences.back(), 512);
  }
  if (prepares) REQUIRE((*run)->Prepare().ok());
  std::vector<std::vector<float>> logits;
  for (const size_t n_rows : {1, 1, 3, 3}) {
    std::vector<PipelineRun::Chunk> chunks;
    std::vector<int32_t> rows;
    for (size_t s = 0; s < n_rows; ++s) {
      TestSequence& sequence = sequences[s];
      const size_t n_decoded = sequence.ids.size() - model.cases[s].prompt_ids.size();
      sequence.ids.push_back(model.cases[s].greedy_ids[n_decoded]);
      chunks.push_back({&sequence, 1});
      rows.push_back(static_cast<int32_t>(s));
    }
    (*run)->Step(chunks);
    for (std::vector<float>& row : (*run)->Logits(rows)) logits.push_back(std::move(row));
  }
  return logits;
}

void CheckCapture(const GoldenModel& model, int32_t n_stages, const Backend& backend) {
  INFO(backend.name << ", " << model.model_dir << ", " << n_stages << " stages");
  CHECK(Decodes(model, n_stages, backend.ops.get(), true) ==
        Decodes(model, n_stages, backend.ops.get(), false));
}

TEST_CASE("Captured steps give the same bits, and their capture leaves the cache as it is") {
  for (const Backend& backend : SameBitsBackends()) {
    const std::vector<GoldenModel> models = FindGoldenModels(STAGECOACH_GOLDEN_DATA);
    for (size_t i = 0; i < models.size(); i += 4) {
      if (BackendsCanRun(models[i])) CheckCapture(models[i], /*n_stages=*/2, backend);
    }
  }
}

TEST_CASE("Captured steps pass on what each layer has as its own inputs") {
  for (const Backend& backend : SameBitsBackends()) {
    for (const GoldenModel& model : FindGoldenModels(STAGECOACH_GOLDEN_DATA)) {
      if (ReadModelSpec(model.model_dir)->layer_inputs.width == 0) continue;
      for (const int32_t n_stages : {1, 2}) CheckCapture(model, n_stages, backend);
    }
  }
}

}  // namespace
}  // namespace stagecoach
