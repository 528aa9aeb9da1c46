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
  std::vector<float> greedy_logprobs, greedy_margins;  // as many
  std::vector<float> prompt_logprobs;  // of prompt_ids[1] and on; empty: not recorded
};

// Root mean square of how far results in bfloat16 are from float32's; 0: not recorded.
struct Rounding {
  double logits = 0, prompt_logprobs = 0;
};

struct GoldenModel {
  std::string name;
  std::string model_dir;
  std::vector<GoldenCase> cases;
  Rounding bfloat16;  // the reference's own
};

// Aborts the test where the file is not readable.
std::vector<GoldenCase> ReadGoldenFile(const std::string& path);
// The folders of `dir` that hold a golden.json, by name.
std::vector<GoldenModel> FindGoldenModels(const std::string& dir);

}  // namespace stagecoach
