// Compares a pipeline's results with those of a golden.json.
#pragma once

#include <span>
#include <string>

#include "tests/golden/golden_data.h"
#include "tests/golden/pipeline_run.h"

namespace stagecoach {

// The largest differences over all cases.
struct Differences {
  float logits = 0, prompt_logprobs = 0, greedy_logprobs = 0;
  int n_tokens = 0, n_close_calls = 0;  // greedy tokens
};

inline constexpr float kGoldenTolerance = 1e-3f;

// Runs each prompt alone, at most `chunk_tokens` per step, then the golden tokens one by one.
// Checks that the greedy tokens are equal wherever the golden file's margin is above `tolerance`.
Differences CompareWithGolden(PipelineRun& run, std::span<const GoldenCase> cases,
                              int32_t chunk_tokens, float tolerance = kGoldenTolerance);

// Checks that each difference is below `tolerance`. STAGECOACH_GOLDEN_VERBOSE prints them.
void CheckWithinTolerance(const std::string& what, const Differences& differences,
                          float tolerance = kGoldenTolerance);

// Root mean square error of `run`'s results for the prompts, over the values that the cases record.
Rounding RoundingOf(PipelineRun& run, std::span<const GoldenCase> cases);

// Checks that our error is less than `most` times the reference's own error in bfloat16. Twice
// allows for chance in single cases. STAGECOACH_GOLDEN_VERBOSE prints both.
void CheckRounding(const std::string& what, const Rounding& ours, const Rounding& reference,
                   double most = 2);

}  // namespace stagecoach
