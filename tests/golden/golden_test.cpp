// Compares the stages' results with those of transformers for the same weights. Also checks that
// the split into stages, the prefill chunks and the neighbours in the batch do not change a single
// bit.
//
// STAGECOACH_GOLDEN_DIR=DIR[:DIR...] adds folders of models with a golden.json.
// STAGECOACH_GOLDEN_MODEL=MODEL_DIR and STAGECOACH_GOLDEN_FILE=FILE select one model whose golden
// file is in another place: `golden_test "[real]"`.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <span>
#include <sstream>

#include "common/model/kv_support.h"
#include "tests/golden/golden_backends.h"
#include "tests/golden/golden_compare.h"
#include "tests/golden/golden_data.h"
#include "tests/golden/pipeline_run.h"

namespace stagecoach {
namespace {

constexpr int32_t kAllAtOnce = 512;
// FP8 has 4 bits less than bfloat16, so each number is off by 16 times as much. Twice that allows
// for chance.
constexpr double kMostFp8Errors = 2 * 16;

// Hidden states in bfloat16 are rounded once, and a model in bfloat16 rounds behind every product.
// Measured with two stages: 0.2 times its error at most, and 0.1 times in the median. With experts
// up to 8.6 times: a row whose two best experts are nearly equal may use the other one.
constexpr double kMostHiddenErrors = 0.25, kMostHiddenErrorsWithExperts = 16;

using Rows = std::vector<std::vector<float>>;

std::vector<GoldenModel> ModelsIn(const std::string& dir) {
  std::vector<GoldenModel> models = FindGoldenModels(dir);
  std::erase_if(models, [](const GoldenModel& model) { return !BackendsCanRun(model); });
  return models;
}

std::vector<GoldenModel> AllModels() {
  std::vector<GoldenModel> models = ModelsIn(STAGECOACH_GOLDEN_DATA);
  const char* const folders = std::getenv("STAGECOACH_GOLDEN_DIR");
  std::istringstream more(folders != nullptr ? folders : "");
  for (std::string dir; std::getline(more, dir, ':');) {
    for (GoldenModel& model : ModelsIn(dir)) models.push_back(std::move(model));
  }
  return models;
}

// Made by make_quantized.py.
std::vector<GoldenModel> QuantizedModels() { return ModelsIn(STAGECOACH_GOLDEN_DATA "/quantized"); }

// Models with keys and values, not latents.
std::vector<GoldenModel> Fp8CacheModels() {
  std::vector<GoldenModel> models = AllModels();
  std::erase_if(models, [](const GoldenModel& model) {
    return !CheckKvDType(*ReadModelSpec(model.model_dir), DType::kFp8).ok();
  });
  return models;
}

std::unique_ptr<PipelineRun> Load(const PipelineOptions& options, kernels::Ops* ops) {
  auto run = PipelineRun::Load(options, ops);
  INFO(options.model_dir << ": " << run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

// Logits of all prompt positions and of a few golden tokens after them, each sequence alone.
std::vector<Rows> Alone(PipelineRun& run, const GoldenModel& model, int32_t chunk_tokens) {
  std::vector<Rows> result;
  for (const GoldenCase& golden : model.cases) {
    TestSequence sequence = run.NewSequence(golden.prompt_ids);
    result.push_back(run.Prefill(&sequence, chunk_tokens));
    for (int step = 0; step < 4; ++step) {
      sequence.ids.push_back(golden.greedy_ids[static_cast<size_t>(step)]);
      result.back().push_back(run.Prefill(&sequence, 1).front());
    }
  }
  return result;
}

// The same with all sequences in one batch. Prompts run in chunks, so that some sequences decode
// while others still prefill.
std::vector<Rows> Together(PipelineRun& run, const GoldenModel& model) {
  std::vector<TestSequence> sequences;
  for (const GoldenCase& golden : model.cases) {
    sequences.push_back(run.NewSequence(golden.prompt_ids));
    sequences.back().ids.insert(sequences.back().ids.end(), golden.greedy_ids.begin(),
                                golden.greedy_ids.begin() + 4);
  }
  std::vector<Rows> result(sequences.size());
  for (bool more = true; more;) {
    std::vector<PipelineRun::Chunk> chunks;
    std::vector<int32_t> rows;
    std::vector<size_t> owner;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int32_t n_prompt = static_cast<int32_t>(model.cases[s].prompt_ids.size());
      const int32_t n_all = static_cast<int32_t>(sequences[s].ids.size());
      const int32_t done = sequences[s].n_done;
      if (done == n_all) continue;
      const int32_t n_tokens = done >= n_prompt ? 1 : std::min(n_prompt - done, 19);
      for (int32_t i = 0; i < n_tokens; ++i) {
        rows.push_back(static_cast<int32_t>(rows.size()));
        owner.push_back(s);
      }
      chunks.push_back({&sequences[s], n_tokens});
    }
    more = !chunks.empty();
    if (!more) break;
    run.Step(chunks);
    const Rows logits = run.Logits(rows);
    for (size_t r = 0; r < rows.size(); ++r) result[owner[r]].push_back(logits[r]);
  }
  return result;
}

// Logits of the last prompt position and of a few golden tokens after it; no other logits are
// requested. The prompts run side by side in chunks.
std::vector<Rows> LastOnly(PipelineRun& run, const GoldenModel& model, int32_t chunk_tokens) {
  std::vector<TestSequence> sequences;
  for (const GoldenCase& golden : model.cases) {
    sequences.push_back(run.NewSequence(golden.prompt_ids));
  }
  std::vector<Rows> result(sequences.size());
  for (bool more = true; more;) {
    std::vector<PipelineRun::Chunk> chunks;
    std::vector<int32_t> rows;
    std::vector<size_t> owner;
    int32_t n_rows = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      TestSequence& sequence = sequences[s];
      if (result[s].size() == 5) continue;
      if (!result[s].empty())
        sequence.ids.push_back(model.cases[s].greedy_ids[result[s].size() - 1]);
      const int32_t left = static_cast<int32_t>(sequence.ids.size()) - sequence.n_done;
      chunks.push_back({&sequence, std::min(left, chunk_tokens)});
      n_rows += chunks.back().n_tokens;
      if (left > chunk_tokens) continue;
      rows.push_back(n_rows - 1);
      owner.push_back(s);
    }
    more = !chunks.empty();
    if (!more) break;
    run.Step(chunks, rows);
    const Rows logits = run.Logits(rows);
    for (size_t r = 0; r < rows.size(); ++r) result[owner[r]].push_back(logits[r]);
  }
  return result;
}

void CheckSameBits(const std::vector<Rows>& a, const std::vector<Rows>& b,
                   const std::string& what) {
  INFO(what);
  REQUIRE(a.size() == b.size());
  for (size_t s = 0; s < a.size(); ++s) {
    INFO("prompt " << s);
    REQUIRE(a[s].size() == b[s].size());
    int first_different = -1;
    for (size_t r = 0; r < a[s].size() && first_different < 0; ++r) {
      if (a[s][r] != b[s][r]) first_different = static_cast<int>(r);
    }
    CHECK(first_different == -1);
  }
}

// Checks that neighbours and chunks change no bit of the results for `options`, which name the
// model. Returns the results.
std::vector<Rows> CheckBatches(const GoldenModel& model, const PipelineOptions& options,
                               std::span<const int32_t> chunks, const Backend& backend,
                               const std::string& what) {
  const auto run = Load(options, backend.ops.get());
  const std::vector<Rows> alone = Alone(*run, model, kAllAtOnce);
  CheckSameBits(alone, Together(*run, model), what + ": with neighbours");
  for (const int32_t chunk : chunks) {
    CheckSameBits(alone, Alone(*run, model, chunk), fmt::format("{}: chunks of {}", what, chunk));
  }
  std::vector<Rows> last = alone;
  for (Rows& rows : last) rows.erase(rows.begin(), rows.end() - 5);
  for (const int32_t chunk : {11, kAllAtOnce / 8}) {
    CheckSameBits(last, LastOnly(*run, model, chunk),
                  fmt::format("{}: last rows of chunks of {}", what, chunk));
  }
  return alone;
}

// Checks the same of stages, too.
void CheckSplits(const GoldenModel& model, PipelineOptions options, std::span<const int32_t> chunks,
                 const Backend& backend, const std::string& what) {
  const std::vector<Rows> alone = CheckBatches(model, options, chunks, backend, what);
  for (const int32_t n_stages : {2, 4}) {
    options.n_stages = n_stages;
    const auto split = Load(options, backend.ops.get());
    CheckSameBits(alone, Alone(*split, model, kAllAtOnce),
                  fmt::format("{}: {} stages", what, n_stages));
  }
}

TEST_CASE("float32 agrees with transformers") {
  std::vector<GoldenModel> models = AllModels();
  REQUIRE(models.size() >= 7);
  // Weights that are quantized in the file are expanded to float32.
  for (GoldenModel& model : QuantizedModels()) models.push_back(std::move(model));
  for (Backend& backend : Backends()) {
    for (const GoldenModel& model : models) {
      const auto run = Load({.model_dir = model.model_dir, .dtype = DType::kF32, .n_blocks = 512},
                            backend.ops.get());
      CheckWithinTolerance(fmt::format("{} on {}", model.name, backend.name),
                           CompareWithGolden(*run, model.cases, kAllAtOnce, backend.tolerance),
                           backend.tolerance);
    }
  }
}

TEST_CASE("the bfloat16 error is at most the reference's bfloat16 error") {
  for (Backend& backend : Backends()) {
    for (const GoldenModel& model : AllModels()) {
      if (model.bfloat16.logits == 0) continue;
      const auto run = Load({.model_dir = model.model_dir, .dtype = DType::kBF16, .n_blocks = 512},
                            backend.ops.get());
      CheckRounding(fmt::format("{} on {} in bfloat16", model.name, backend.name),
                    RoundingOf(*run, model.cases), model.bfloat16);
    }
  }
}

TEST_CASE("stages, chunks and other sequences change no bit") {
  for (const Backend& backend : SameBitsBackends()) {
    std::vector<GoldenModel> all = AllModels();
    const size_t n_plain = all.size();
    for (GoldenModel& model : QuantizedModels()) all.push_back(std::move(model));
    for (size_t i = 0; i < all.size(); i += backend.model_stride) {
      const GoldenModel& model = all[i];
      for (const std::optional<DType> dtype :
           {std::optional<DType>(DType::kF32), std::optional<DType>()}) {
        if (i >= n_plain && dtype) continue;
        constexpr int32_t kChunks[] = {1, 7, 16};
        CheckSplits(
            model, {.model_dir = model.model_dir, .dtype = dtype, .n_blocks = 1024}, kChunks,
            backend,
            fmt::format("{} on {}, {}", model.name, backend.name, dtype ? "float32" : "as stored"));
      }
    }
  }
}

TEST_CASE("with an FP8 cache, the error is a multiple of the reference's bfloat16 error") {
  for (Backend& backend : Backends()) {
    for (const GoldenModel& model : Fp8CacheModels()) {
      if (model.bfloat16.logits == 0) continue;
      const auto run = Load({.model_dir = model.model_dir,
                             .dtype = DType::kF32,
                             .kv_dtype = v1::KV_DTYPE_FP8,
                             .n_blocks = 512},
                            backend.ops.get());
      CheckRounding(fmt::format("{} on {}, FP8 cache", model.name, backend.name),
                    RoundingOf(*run, model.cases), model.bfloat16, kMostFp8Errors);
    }
  }
}

TEST_CASE("with an FP8 cache, stages, chunks and other sequences change no bit") {
  for (const Backend& backend : SameBitsBackends()) {
    const std::vector<GoldenModel> all = Fp8CacheModels();
    for (size_t i = 0; i < all.size(); i += backend.model_stride) {
      constexpr int32_t kChunks[] = {7};
      CheckSplits(all[i],
                  {.model_dir = all[i].model_dir, .kv_dtype = v1::KV_DTYPE_FP8, .n_blocks = 1024},
                  kChunks, backend, fmt::format("{} on {}, FP8 cache", all[i].name, backend.name));
    }
  }
}

TEST_CASE(
    "with hidden states in bfloat16, the error is a share of the reference's bfloat16 error") {
  for (Backend& backend : Backends()) {
    for (const GoldenModel& model : AllModels()) {
      if (model.bfloat16.logits == 0) continue;
      const auto run = Load({.model_dir = model.model_dir,
                             .n_stages = 2,
                             .dtype = DType::kF32,
                             .hidden_dtype = v1::HIDDEN_DTYPE_BFLOAT16,
                             .n_blocks = 512},
                            backend.ops.get());
      const bool has_experts = run->spec().experts.n_experts > 0;
      CheckRounding(fmt::format("{} on {}, hidden states in bfloat16", model.name, backend.name),
                    RoundingOf(*run, model.cases), model.bfloat16,
                    has_experts ? kMostHiddenErrorsWithExperts : kMostHiddenErrors);
    }
  }
}

TEST_CASE("with hidden states in bfloat16, chunks and other sequences change no bit") {
  for (const Backend& backend : SameBitsBackends()) {
    const std::vector<GoldenModel> all = AllModels();
    for (size_t i = 0; i < all.size(); i += backend.model_stride) {
      const GoldenModel& model = all[i];
      constexpr int32_t kChunks[] = {7};
      CheckBatches(model,
                   {.model_dir = model.model_dir,
                    .n_stages = 2,
                    .hidden_dtype = v1::HIDDEN_DTYPE_BFLOAT16,
                    .n_blocks = 1024},
                   kChunks, backend,
                   fmt::format("{} on {}, hidden states in bfloat16", model.name, backend.name));
    }
  }
}

TEST_CASE("dummy weights give the same model for every layer split") {
  for (const Backend& backend : Backends()) {
    if (!backend.splits_alike) continue;
    for (const GoldenModel& model : ModelsIn(STAGECOACH_GOLDEN_DATA)) {
      PipelineOptions options{.model_dir = model.model_dir, .dummy_weights = true, .n_blocks = 256};
      const auto one_stage = Load(options, backend.ops.get());
      const std::vector<Rows> whole = Alone(*one_stage, model, kAllAtOnce);
      for (const Rows& rows : whole) {
        for (const float logit : rows.back()) REQUIRE(std::isfinite(logit));
      }
      options.n_stages = 4;
      const auto split = Load(options, backend.ops.get());
      CheckSameBits(whole, Alone(*split, model, kAllAtOnce),
                    fmt::format("{} on {}", model.name, backend.name));
    }
  }
}

TEST_CASE("one real model", "[.][real]") {
  const char* const model_dir = std::getenv("STAGECOACH_GOLDEN_MODEL");
  const char* const file = std::getenv("STAGECOACH_GOLDEN_FILE");
  REQUIRE(model_dir != nullptr);
  REQUIRE(file != nullptr);
  std::vector<Backend> backends = Backends();
  const Backend& backend = backends.back();
  const auto run =
      Load({.model_dir = model_dir, .n_stages = 2, .dtype = DType::kF32, .max_model_len = 4096},
           backend.ops.get());
  CheckWithinTolerance(fmt::format("{} on {}", model_dir, backend.name),
                       CompareWithGolden(*run, ReadGoldenFile(file), kAllAtOnce, backend.tolerance),
                       backend.tolerance);
}

}  // namespace
}  // namespace stagecoach
