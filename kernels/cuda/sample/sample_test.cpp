// Sampling on the device, compared with the reference.
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "kernels/cuda/testing/device_values.h"

namespace stagecoach::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kMostTop = 64;

struct Drawn {
  std::vector<SampledToken> tokens;
  std::vector<std::vector<int32_t>> top_ids;
  std::vector<std::vector<float>> top_logprobs;
};

// Samples each of `rows` from the same logits.
Drawn SampleAll(Ops& ops, const std::vector<float>& logits, const std::vector<SampleRow>& rows,
                int32_t* sampled = nullptr) {
  std::vector<float> all;
  for (size_t r = 0; r < rows.size(); ++r) all.insert(all.end(), logits.begin(), logits.end());
  const Values on_device(ops, all);
  const size_t n = rows.size();
  const Buffer memory = *ops.AllocateHost(n * (sizeof(SampledToken) + kMostTop * 8));
  auto* const out = memory.As<SampledToken>();
  auto* const ids = reinterpret_cast<int32_t*>(out + n);
  auto* const logprobs = reinterpret_cast<float*>(ids + n * kMostTop);
  for (size_t r = 0; r < n; ++r) {
    out[r] = {.top_ids = ids + r * kMostTop, .top_logprobs = logprobs + r * kMostTop};
  }
  ops.Sample({.logits = on_device.f32(),
              .vocab = static_cast<int32_t>(logits.size()),
              .rows = rows,
              .out = {out, n},
              .sampled = sampled});
  REQUIRE(ops.Wait(ops.Mark()).ok());
  Drawn drawn;
  for (size_t r = 0; r < n; ++r) {
    const auto n_top = static_cast<size_t>(std::max(rows[r].n_logprobs, 0));
    drawn.tokens.push_back(out[r]);
    drawn.top_ids.emplace_back(out[r].top_ids, out[r].top_ids + n_top);
    drawn.top_logprobs.emplace_back(out[r].top_logprobs, out[r].top_logprobs + n_top);
  }
  return drawn;
}

void Compare(const std::vector<float>& logits, const std::vector<SampleRow>& rows) {
  const auto ops = NewCudaOps();
  const auto reference = MakeReferenceOps();
  const Drawn mine = SampleAll(*ops, logits, rows), theirs = SampleAll(*reference, logits, rows);
  for (size_t r = 0; r < rows.size(); ++r) {
    INFO("row " << r << " of " << logits.size() << " tokens");
    CHECK(mine.tokens[r].token == theirs.tokens[r].token);
    CHECK(mine.top_ids[r] == theirs.top_ids[r]);
    const auto close = [](float a, float b) { return a == b || std::abs(a - b) < 1e-4f; };
    if (rows[r].n_logprobs >= 0) CHECK(close(mine.tokens[r].logprob, theirs.tokens[r].logprob));
    for (size_t i = 0; i < mine.top_logprobs[r].size(); ++i) {
      CHECK(close(mine.top_logprobs[r][i], theirs.top_logprobs[r][i]));
    }
  }
}

std::vector<SampleRow> Draws(SampleRow row, int n) {
  std::vector<SampleRow> rows;
  for (int i = 0; i < n; ++i) {
    row.position = static_cast<uint64_t>(i);
    rows.push_back(row);
  }
  return rows;
}

TEST_CASE("Sample: greedy, with ties, NaN and infinities") {
  for (const auto& logits : std::vector<std::vector<float>>{{1, 3, 2, 3},
                                                            {kNan, -5, kNan},
                                                            {kNan, -kInf, kNan},
                                                            {1, kInf, 2, kInf},
                                                            {-0.0f, 0.0f},
                                                            RandomFloats(5000, 1)}) {
    Compare(logits, {{},
                     {.n_logprobs = 3},
                     {.params = {.temperature = 1}},
                     {.params = {.temperature = 1, .top_k = 1}}});
  }
}

TEST_CASE("Sample: temperatures whose inverse overflows a float") {
  for (const float temperature : {1e-45f, 2.9e-39f, 3e-39f, 1e-30f}) {
    const SampleRow row{.params = {.temperature = temperature}};
    for (const auto& logits : std::vector<std::vector<float>>{
             {1, 3, 2, 3}, {5, 5, 5, 5, 5}, {kInf, 1, kInf}, {kNan, -2, -kInf, -2}}) {
      Compare(logits, Draws(row, 6));
      Compare(logits,
              {{.params = {.temperature = temperature, .top_k = 2, .top_p = 0.9f, .min_p = 0.1f}}});
    }
  }
}

TEST_CASE("Sample: draws with top-k, top-p, min-p and combinations") {
  const size_t vocab = GENERATE(5, 1001, 9000);
  const float deviation = GENERATE(0.0f, 0.01f, 3.0f, 30.0f);
  std::vector<float> logits = RandomFloats(vocab, 7, deviation);
  for (float& logit : logits) logit = std::round(logit * 64) / 64;  // creates ties
  std::vector<SampleRow> rows;
  for (const SampleRow& row : std::vector<SampleRow>{
           {.params = {.temperature = 1}},
           {.params = {.temperature = 0.3f}},
           {.params = {.temperature = 5}},
           {.params = {.temperature = 1, .top_k = 3}},
           {.params = {.temperature = 1, .top_k = 100}},
           {.params = {.temperature = 1, .top_p = 0.9f}},
           {.params = {.temperature = 1, .top_p = 0}},
           {.params = {.temperature = 1, .min_p = 0.1f}},
           {.params = {.temperature = 2, .min_p = 1}},
           {.params = {.temperature = 1, .top_n_sigma = 1}},
           {.params = {.temperature = 5, .top_n_sigma = 2.5f}},
           {.params = {.temperature = 5, .top_k = 30, .top_p = 0.9f, .top_n_sigma = 2}},
           {.params = {.temperature = 1, .top_k = 50, .top_p = 0.8f, .min_p = 0.05f},
            .n_logprobs = 5}}) {
    for (const SampleRow& draw : Draws(row, 4)) rows.push_back(draw);
  }
  Compare(logits, rows);
}

TEST_CASE("Sample: bias, forbidden ids, penalties, log-probabilities of the raw row") {
  const std::vector<float> logits = RandomFloats(300, 3, 2.0f);
  const std::vector<int32_t> bias_ids = {2, 299, -1, 300, 17}, forbidden = {5, 2, 1000};
  const std::vector<float> bias_values = {20, -kInf, 1, 1, 19};
  const std::vector<TokenCount> counts = {{17, 0}, {30, 2}, {31, 1}, {-4, 1}, {400, 1}};
  std::vector<SampleRow> rows;
  for (const bool greedy : {true, false}) {
    for (const int32_t n_logprobs : {-1, 0, 20}) {
      rows.push_back({.params = {.temperature = greedy ? 0.0f : 1.0f,
                                 .presence_penalty = 0.5f,
                                 .frequency_penalty = 1.5f,
                                 .repetition_penalty = 1.3f},
                      .counts = counts,
                      .forbidden = forbidden,
                      .bias_ids = bias_ids,
                      .bias_values = bias_values,
                      .n_logprobs = n_logprobs});
      rows.push_back({.params = {.temperature = greedy ? 0.0f : 1.0f},
                      .bias_ids = bias_ids,
                      .bias_values = bias_values,
                      .n_logprobs = n_logprobs});
    }
  }
  rows.push_back({.given_token = 7, .n_logprobs = 2});
  rows.push_back({.given_token = 299, .n_logprobs = 0});
  Compare(logits, rows);
}

// Allows every `stride`-th token from `first` on.
std::vector<uint32_t> Mask(size_t vocab, size_t first, size_t stride) {
  std::vector<uint32_t> words((vocab + 31) / 32);
  for (size_t id = first; id < vocab; id += stride) words[id / 32] |= uint32_t{1} << (id % 32);
  return words;
}

TEST_CASE("Sample: a mask allows only its tokens, also next to rows without a mask") {
  const size_t vocab = GENERATE(5, 1001, 9000);
  const std::vector<float> logits = RandomFloats(vocab, 7, 3.0f);
  const std::vector<uint32_t> few = Mask(vocab, 3, 97), many = Mask(vocab, 1, 2),
                              one = Mask(vocab, vocab - 1, 1);
  const std::vector<int32_t> bias_ids = {0, 3, 4}, forbidden = {3};
  const std::vector<float> bias_values = {50, 4, 50};
  const std::vector<TokenCount> counts = {{1, 2}, {3, 1}, {4, 0}};
  std::vector<SampleRow> rows;
  for (const std::vector<uint32_t>* mask : {&few, &many, &one}) {
    for (const SampleRow& row : std::vector<SampleRow>{
             {.allowed = *mask},
             {},
             {.params = {.temperature = 1}, .allowed = *mask},
             {.params = {.temperature = 5, .top_k = 40, .top_p = 0.9f},
              .allowed = *mask,
              .n_logprobs = 3},
             {.params = {.temperature = 3, .min_p = 0.01f}, .allowed = *mask},
             {.given_token = 2, .n_logprobs = 1},
             {.params = {.temperature = 1, .presence_penalty = 0.5f, .repetition_penalty = 1.3f},
              .counts = counts,
              .forbidden = forbidden,
              .allowed = *mask,
              .bias_ids = bias_ids,
              .bias_values = bias_values,
              .n_logprobs = 2}}) {
      for (const SampleRow& draw : Draws(row, 3)) rows.push_back(draw);
    }
  }
  Compare(logits, rows);
}

TEST_CASE("Sample: masks hold for any logits") {
  const std::vector<uint32_t> allowed = {0b1010};
  const std::vector<int32_t> forbidden = {1};
  for (const auto& logits : std::vector<std::vector<float>>{{9, kNan, 9, -kInf},
                                                            {kInf, 0, 0, 1},
                                                            {kInf, kInf, kInf, kInf},
                                                            {kNan, kNan, kNan, kNan}}) {
    Compare(logits, {{.allowed = allowed},
                     {.params = {.temperature = 1}, .allowed = allowed, .n_logprobs = 4},
                     {.params = {.temperature = 1}, .forbidden = forbidden, .allowed = allowed}});
  }
}

TEST_CASE("Sample: masks can change from call to call") {
  const auto ops = NewCudaOps();
  [[maybe_unused]] const uint64_t free_before = ops->Memory().free_bytes;
  std::vector<float> logits(40000, 0.0f);
  for (int32_t call = 0; call < 12; ++call) {
    // The number of rows grows.
    const size_t n_rows = 1 + static_cast<size_t>(call) / 4;
    std::vector<std::vector<uint32_t>> masks;
    std::vector<SampleRow> rows;
    for (size_t r = 0; r < n_rows; ++r) {
      masks.push_back(Mask(logits.size(), 1000 * static_cast<size_t>(call) + r, logits.size()));
    }
    for (const auto& mask : masks) rows.push_back({.allowed = mask});
    const Drawn drawn = SampleAll(*ops, logits, rows);
    for (size_t r = 0; r < n_rows; ++r) {
      CHECK(drawn.tokens[r].token == 1000 * call + static_cast<int32_t>(r));
    }
  }
#ifdef STAGECOACH_EMULATED_CUDA  // other processes use a real GPU's memory too
  // Allocating or freeing in a step would wait for receives that wait for the next step.
  CHECK(ops->Memory().free_bytes == free_before);
#endif
}

TEST_CASE("Sample: more log-probabilities than the vocabulary has tokens") {
  Compare({1, 2, 3}, {{.n_logprobs = 5}, {.params = {.temperature = 1}, .n_logprobs = 64}});
}

TEST_CASE("Sample: sampled tokens are stored for the next step") {
  const auto ops = NewCudaOps();
  const Ids sampled(*ops, {-1, -1, -1, -1});
  SampleAll(
      *ops, {1, 2, 5, 3},
      {{.slot = 2}, {.given_token = 1, .slot = 0, .n_logprobs = 0}, {.slot = -1}, {.slot = 3}},
      sampled.data());
  CHECK(sampled.Get() == std::vector<int32_t>{-1, -1, 2, 2});
}

}  // namespace
}  // namespace stagecoach::kernels
