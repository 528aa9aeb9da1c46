// Reads a model's golden.json (see make.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

struct GoldenCase {
  std::string text;
  std::vector<int32_t> prompt_ids;
  std::vector<float> logits;  // of the last prompt position; empty: not recorded
  std::vector<int32_t> greedy_ids;
  std::vector<float> greedy_logprobs, greedy_margins;  // same size as greedy_ids
  // Log-probabilities of prompt_ids[1] and later; empty: not recorded.
  std::vector<float> prompt_logprobs;
};

// Root mean square difference between results in bfloat16 and in float32; 0: not recorded.
struct Rounding {
  double logits = 0, prompt_logprobs = 0;
};

struct GoldenModel {
  std::string name;
  std::string model_dir;
  std::vector<GoldenCase> cases;
  Rounding bfloat16;  // error of the reference itself
};

// Aborts the test if the file is not readable.
std::vector<GoldenCase> ReadGoldenFile(const std::string& path);
// The folders in `dir` that have a golden.json, sorted by name.
std::vector<GoldenModel> FindGoldenModels(const std::string& dir);

}  // namespace stagecoach
