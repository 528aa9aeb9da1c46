// Hand-computed cases of the sampler's contract (kernels/ops.h), run on the reference.
#include "kernels/reference/reference_sample.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace stagecoach::kernels {
namespace {

using Catch::Approx;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t SampleToken(const std::vector<float>& logits, const SampleRow& row) {
  SampledToken out;
  ReferenceSampleRow(logits, row, &out);
  return out.token;
}

// The set of tokens that 2,000 positions draw.
std::set<int32_t> Support(const std::vector<float>& logits, SampleRow row) {
  std::set<int32_t> tokens;
  for (row.position = 0; row.position < 2000; ++row.position) {
    tokens.insert(SampleToken(logits, row));
  }
  return tokens;
}

TEST_CASE("Greedy takes the largest logit, and the lowest id among equal ones") {
  CHECK(SampleToken({1, 3, 2, 3}, {}) == 1);
  CHECK(SampleToken({kNan, -5, kNan}, {}) == 1);
  CHECK(SampleToken({kNan, -kInf, kNan}, {}) == 0);
  CHECK(SampleToken({1, kInf, 2}, SampleRow{.params = {.temperature = 1}}) == 1);
}

TEST_CASE("Bias, forbidden ids and penalties apply in order") {
  const std::vector<int32_t> bias_ids = {2, 99, -1};
  const std::vector<float> bias_values = {5, 1, 1};
  SampleRow row{.bias_ids = bias_ids, .bias_values = bias_values};
  CHECK(SampleToken({1, 3, 2}, row) == 2);
  const std::vector<int32_t> forbidden = {2};
  row.forbidden = forbidden;
  CHECK(SampleToken({1, 3, 2}, row) == 1);

  SECTION("repetition divides positive logits and multiplies negative ones") {
    const std::vector<TokenCount> counts = {{1, 0}, {0, 1}};
    CHECK(SampleToken({1.6f, 3, 1.7f},
                      SampleRow{.params = {.repetition_penalty = 2}, .counts = counts}) == 2);
    CHECK(SampleToken({-1, -1.5f, -1.6f},
                      SampleRow{.params = {.repetition_penalty = 2}, .counts = counts}) == 2);
  }
  SECTION("frequency counts occurrences in the output, presence only whether there is one") {
    const std::vector<TokenCount> counts = {{0, 0}, {1, 3}};
    CHECK(SampleToken({1, 3.9f}, SampleRow{.params = {.frequency_penalty = 1}, .counts = counts}) ==
          0);
    CHECK(SampleToken({1, 4.1f}, SampleRow{.params = {.frequency_penalty = 1}, .counts = counts}) ==
          1);
    CHECK(SampleToken({1, 1.9f}, SampleRow{.params = {.presence_penalty = 1}, .counts = counts}) ==
          0);
    CHECK(SampleToken({1, 2.1f}, SampleRow{.params = {.presence_penalty = 1}, .counts = counts}) ==
          1);
  }
}

TEST_CASE("A mask allows only its tokens") {
  const std::vector<uint32_t> allowed = {0b1010};
  CHECK(SampleToken({9, 1, 9, 2}, SampleRow{.allowed = allowed}) == 3);
  CHECK(Support({9, 1, 9, 2}, {.params = {.temperature = 5}, .allowed = allowed}) ==
        std::set<int32_t>{1, 3});
  // Only allowed tokens come out, even if all their logits are NaN or -inf.
  CHECK(SampleToken({9, kNan, 9, -kInf},
                    SampleRow{.params = {.temperature = 1}, .allowed = allowed}) == 1);
  CHECK(SampleToken({kInf, 0, 0, 1}, SampleRow{.allowed = allowed}) == 3);
  const std::vector<int32_t> forbidden = {3};
  CHECK(SampleToken({0, 1, 2, 3}, SampleRow{.forbidden = forbidden, .allowed = allowed}) == 1);
}

TEST_CASE("Top-k, top-p and min-p keep the right tokens") {
  // probabilities 0.5, 0.25, 0.125, 0.125
  const std::vector<float> logits = {std::log(4.0f), std::log(2.0f), 0, 0};
  CHECK(Support(logits, {.params = {.temperature = 1}}) == std::set<int32_t>{0, 1, 2, 3});
  CHECK(Support(logits, {.params = {.temperature = 1, .top_k = 3}}) == std::set<int32_t>{0, 1, 2});
  CHECK(Support(logits, {.params = {.temperature = 1, .top_k = 99}}) ==
        std::set<int32_t>{0, 1, 2, 3});
  CHECK(Support(logits, {.params = {.temperature = 1, .top_p = 0.49f}}) == std::set<int32_t>{0});
  CHECK(Support(logits, {.params = {.temperature = 1, .top_p = 0.74f}}) == std::set<int32_t>{0, 1});
  CHECK(Support(logits, {.params = {.temperature = 1, .top_p = 0}}) == std::set<int32_t>{0});
  // Top-p applies to the tokens that top-k keeps, with probabilities 2/3 and 1/3.
  CHECK(Support(logits, {.params = {.temperature = 1, .top_k = 2, .top_p = 0.6f}}) ==
        std::set<int32_t>{0});
  CHECK(Support(logits, {.params = {.temperature = 1, .min_p = 0.49f}}) == std::set<int32_t>{0, 1});
  CHECK(Support(logits, {.params = {.temperature = 1, .min_p = 1}}) == std::set<int32_t>{0});
  CHECK(Support({2, 2, 1}, {.params = {.temperature = 1, .min_p = 1}}) == std::set<int32_t>{0, 1});
}

TEST_CASE("Top-n-sigma keeps the tokens near the largest logit, at every temperature") {
  // The standard deviation is 2.
  const std::vector<float> logits = {8, 4, 8, 4, 4, 8};
  for (const float temperature : {0.1f, 1.0f, 50.0f}) {
    const auto support = [&](std::vector<float> values, float n_sigma) {
      return Support(values, {.params = {.temperature = temperature, .top_n_sigma = n_sigma}});
    };
    CHECK(support(logits, 1.9f) == std::set<int32_t>{0, 2, 5});
    CHECK(support({1, kInf, 2, kInf}, 1) == std::set<int32_t>{1, 3});
    CHECK(support({3, 3, 3}, 0.1f) == std::set<int32_t>{0, 1, 2});
    // What has no chance does not count: NaN and -inf.
    CHECK(support({8, 4, -kInf, kNan}, 1.9f) == std::set<int32_t>{0});
  }
  const auto support = [&](SampleParams params) {
    params.temperature = 50;
    return Support(logits, {.params = params});
  };
  CHECK(support({.top_n_sigma = 2}).size() == 6);  // at most two, so 4 is kept
  CHECK(support({.top_n_sigma = -1}).size() == 6);
  CHECK(support({.top_k = 1, .top_n_sigma = 1.9f}) == std::set<int32_t>{0});
  // Top-p is of what top-n-sigma left: a third each.
  CHECK(support({.top_p = 0.6f, .top_n_sigma = 1.9f}) == std::set<int32_t>{0, 2});
}

TEST_CASE("The lowest temperature keeps only tokens that tie with the largest logit") {
  CHECK(Support({1, 3, 2, 3}, {.params = {.temperature = 1e-45f}}) == std::set<int32_t>{1, 3});
}

TEST_CASE("Log-probabilities are computed from the raw logits") {
  int32_t ids[5];
  float logprobs[5];
  SampledToken out{.top_ids = ids, .top_logprobs = logprobs};
  const std::vector<int32_t> bias_ids = {2};
  const std::vector<float> bias_values = {10};
  const SampleRow row{.bias_ids = bias_ids, .bias_values = bias_values, .n_logprobs = 5};
  ReferenceSampleRow(std::vector<float>{std::log(2.0f), std::log(5.0f), std::log(2.0f), 0}, row,
                     &out);
  CHECK(out.token == 2);
  CHECK(out.logprob == Approx(std::log(0.2)));
  CHECK(std::vector<int32_t>(ids, ids + 5) == std::vector<int32_t>{1, 0, 2, 3, -1});
  CHECK(logprobs[0] == Approx(std::log(0.5)));
  CHECK(logprobs[3] == Approx(std::log(0.1)));
  CHECK(logprobs[4] == -kInf);

  SampledToken given{.top_ids = ids, .top_logprobs = logprobs};
  ReferenceSampleRow(std::vector<float>{0, 0}, {.given_token = 1, .n_logprobs = 0}, &given);
  CHECK(given.token == 1);
  CHECK(given.logprob == Approx(std::log(0.5)));
}

}  // namespace
}  // namespace stagecoach::kernels
