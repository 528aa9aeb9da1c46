// A pipeline's results beside those of a golden.json.
#pragma once

#include <span>
#include <string>

#include "tests/golden/golden_data.h"
#include "tests/golden/pipeline_run.h"

namespace stagecoach {

// The greatest found, over all cases.
struct Differences {
  float logits = 0, prompt_logprobs = 0, greedy_logprobs = 0;
  int n_tokens = 0, n_close_calls = 0;  // greedy ones
};

inline constexpr float kGoldenTolerance = 1e-3f;

// Each prompt alone, at most `chunk_tokens` in a step, then the golden tokens one by one. Checks
// that the greedy tokens are equal where the golden file's margin, above `tolerance`, decides.
Differences CompareWithGolden(PipelineRun& run, std::span<const GoldenCase> cases,
                              int32_t chunk_tokens, float tolerance = kGoldenTolerance);

// Within `tolerance` each; STAGECOACH_GOLDEN_VERBOSE prints them.
void CheckWithinTolerance(const std::string& what, const Differences& differences,
                          float tolerance = kGoldenTolerance);

// Of `run`'s results for the prompts, where the cases have them.
Rounding RoundingOf(PipelineRun& run, std::span<const GoldenCase> cases);

// No more than the reference's own, but for the chance of one case or the other;
// STAGECOACH_GOLDEN_VERBOSE prints both.
void CheckRounding(const std::string& what, const Rounding& ours, const Rounding& reference);

}  // namespace stagecoach
