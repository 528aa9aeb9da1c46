#include "tests/golden/golden_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>

namespace stagecoach {
namespace {

std::vector<float> LogSoftmax(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  std::vector<float> result;
  for (const float x : logits) result.push_back(static_cast<float>(x - max - std::log(sum)));
  return result;
}

void CompareCase(PipelineRun& run, const GoldenCase& golden, int32_t chunk_tokens, float tolerance,
                 Differences& worst) {
  TestSequence sequence = run.NewSequence(golden.prompt_ids);
  std::vector<std::vector<float>> rows = run.Prefill(&sequence, chunk_tokens);
  for (size_t i = 0; i < golden.prompt_logprobs.size(); ++i) {
    const float mine = LogSoftmax(rows[i])[static_cast<size_t>(golden.prompt_ids[i + 1])];
    worst.prompt_logprobs =
        std::max(worst.prompt_logprobs, std::abs(mine - golden.prompt_logprobs[i]));
  }
  for (size_t i = 0; i < golden.logits.size(); ++i) {
    worst.logits = std::max(worst.logits, std::abs(rows.back()[i] - golden.logits[i]));
  }
  for (size_t step = 0; step < golden.greedy_ids.size(); ++step) {
    const std::vector<float>& logits = rows.back();
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    const int32_t expected = golden.greedy_ids[step];
    if (golden.greedy_margins[step] > tolerance) {
      INFO("step " << step << " of \"" << golden.text << '"');
      CHECK(best == expected);
      ++worst.n_tokens;
    } else {
      ++worst.n_close_calls;
    }
    const float mine = LogSoftmax(logits)[static_cast<size_t>(expected)];
    worst.greedy_logprobs =
        std::max(worst.greedy_logprobs, std::abs(mine - golden.greedy_logprobs[step]));
    sequence.ids.push_back(expected);
    rows = run.Prefill(&sequence, 1);
  }
}

class MeanSquare {
 public:
  void Add(double difference) {
    sum_ += difference * difference;
    ++n_;
  }
  double Root() const { return n_ == 0 ? 0 : std::sqrt(sum_ / n_); }

 private:
  double sum_ = 0;
  int n_ = 0;
};

bool IsVerbose() { return std::getenv("STAGECOACH_GOLDEN_VERBOSE") != nullptr; }

}  // namespace

Rounding RoundingOf(PipelineRun& run, std::span<const GoldenCase> cases) {
  MeanSquare of_logits, of_logprobs;
  for (const GoldenCase& golden : cases) {
    TestSequence sequence = run.NewSequence(golden.prompt_ids);
    const auto rows = run.Prefill(&sequence, static_cast<int32_t>(golden.prompt_ids.size()));
    for (size_t i = 0; i < golden.logits.size(); ++i) {
      of_logits.Add(rows.back()[i] - golden.logits[i]);
    }
    for (size_t i = 0; i < golden.prompt_logprobs.size(); ++i) {
      const float mine = LogSoftmax(rows[i])[static_cast<size_t>(golden.prompt_ids[i + 1])];
      of_logprobs.Add(mine - golden.prompt_logprobs[i]);
    }
  }
  return {of_logits.Root(), of_logprobs.Root()};
}

void CheckRounding(const std::string& what, const Rounding& ours, const Rounding& reference,
                   double most) {
  const std::string line = fmt::format(
      "{}: off by {:.2e} (logits) and {:.2e} (prompt logprobs), the reference in bfloat16 by "
      "{:.2e} and {:.2e}",
      what, ours.logits, ours.prompt_logprobs, reference.logits, reference.prompt_logprobs);
  if (IsVerbose()) fmt::print("{}\n", line);
  INFO(line);
  // If two experts have nearly the same router score for a row, rounding decides which one is used,
  // so the error may differ by chance.
  CHECK(ours.logits < most * reference.logits);
  CHECK(ours.prompt_logprobs < most * reference.prompt_logprobs);
}

Differences CompareWithGolden(PipelineRun& run, std::span<const GoldenCase> cases,
                              int32_t chunk_tokens, float tolerance) {
  Differences worst;
  for (const GoldenCase& golden : cases) CompareCase(run, golden, chunk_tokens, tolerance, worst);
  return worst;
}

void CheckWithinTolerance(const std::string& what, const Differences& d, float tolerance) {
  const std::string line = fmt::format(
      "{}: greatest difference of logits {:.2e}, prompt logprobs {:.2e}, greedy logprobs {:.2e}; "
      "{} greedy tokens equal, "
      "{} too close to call",
      what, d.logits, d.prompt_logprobs, d.greedy_logprobs, d.n_tokens, d.n_close_calls);
  if (IsVerbose()) fmt::print("{}\n", line);
  INFO(line);
  CHECK(d.logits < tolerance);
  CHECK(d.prompt_logprobs < tolerance);
  CHECK(d.greedy_logprobs < tolerance);
}

}  // namespace stagecoach
