#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <limits>

#include "kernels/cpu/kernel_test_util.h"

namespace stagecoach::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<SampledToken> SampleAll(Ops& ops, std::vector<float> logits,
                                    const std::vector<SampleRow>& rows,
                                    std::vector<SampledToken> out = {}) {
  out.resize(rows.size());
  ops.Sample({.logits = logits.data(),
              .vocab = static_cast<int32_t>(logits.size() / rows.size()),
              .rows = rows,
              .out = out});
  REQUIRE(ops.Synchronize().ok());
  return out;
}

// Checks that the CPU and the reference give the same tokens and log-probabilities, for each of
// `rows` over the same row of logits.
void Compare(Ops& ops, const std::vector<float>& logits, const std::vector<SampleRow>& rows) {
  auto reference = MakeReferenceOps();
  std::vector<float> all;
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> logprobs;
  std::vector<SampledToken> out, expected;
  for (const SampleRow& row : rows) {
    all.insert(all.end(), logits.begin(), logits.end());
    for (std::vector<SampledToken>* tokens : {&out, &expected}) {
      ids.emplace_back(std::max(row.n_logprobs, 0), -7);
      logprobs.emplace_back(std::max(row.n_logprobs, 0), -7.0f);
      tokens->push_back({.top_ids = ids.back().data(), .top_logprobs = logprobs.back().data()});
    }
  }
  out = SampleAll(ops, all, rows, out);
  expected = SampleAll(*reference, all, rows, expected);
  const auto same = [](float a, float b) {
    return a == b || std::abs(a - b) < 2e-6f * (1 + std::abs(b));
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    INFO("row " << i << " temperature " << rows[i].params.temperature << " k "
                << rows[i].params.top_k << " p " << rows[i].params.top_p << " min_p "
                << rows[i].params.min_p << " at " << rows[i].position);
    CHECK(out[i].token == expected[i].token);
    if (rows[i].n_logprobs < 0) continue;
    CHECK(same(out[i].logprob, expected[i].logprob));
    CHECK(ids[2 * i] == ids[2 * i + 1]);
    for (int32_t k = 0; k < rows[i].n_logprobs; ++k) {
      CHECK(same(logprobs[2 * i][k], logprobs[2 * i + 1][k]));
    }
  }
}

std::vector<SampleRow> ManyRows(int n, uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](auto... values) {
    const std::array options = {static_cast<float>(values)...};
    return options[random() % options.size()];
  };
  std::vector<SampleRow> rows;
  for (int i = 0; i < n; ++i) {
    rows.push_back({.params = {.temperature = pick(0, 0.1, 0.7, 1, 1, 2, 50),
                               .top_k = static_cast<int32_t>(pick(0, 0, 1, 2, 40, 1000, 1e6)),
                               .top_p = pick(1, 1, 0, 0.1, 0.9, 0.999),
                               .min_p = pick(0, 0, 0.05, 0.5, 1),
                               .top_n_sigma = pick(0, 0, 0, 0.3, 1, 3)},
                    .seed = random(),
                    .position = static_cast<uint64_t>(i),
                    .n_logprobs = static_cast<int32_t>(pick(-1, -1, 0, 1, 5, 20))});
  }
  return rows;
}

TEST_CASE("Sample draws the same tokens as the reference") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  auto ops = MakeCpuOpsFor(target, 2);
  const int vocab = GENERATE(1, 2, 17, 1000, 5003);
  const float deviation = GENERATE(0.0f, 1e-3f, 3.0f, 40.0f);
  INFO(target << " vocab " << vocab << " deviation " << deviation);
  Compare(*ops, RandomFloats(vocab, 1, deviation), ManyRows(60, static_cast<uint32_t>(vocab)));
}

TEST_CASE("Sample: ties, infinities and NaN") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  auto ops = MakeCpuOpsFor(target, 1);
  const std::vector<SampleRow> rows = ManyRows(60, 3);
  std::vector<float> ties(999);
  for (size_t i = 0; i < ties.size(); ++i) ties[i] = static_cast<float>(i % 5);
  Compare(*ops, ties, rows);
  std::vector<float> broken = RandomFloats(500, 2, 4);
  for (size_t i = 0; i < broken.size(); i += 3) broken[i] = i % 2 == 0 ? kNan : -kInf;
  Compare(*ops, broken, rows);
  broken[77] = broken[401] = kInf;
  Compare(*ops, broken, rows);
  Compare(*ops, std::vector<float>(100, kNan), rows);
  Compare(*ops, std::vector<float>(100, -kInf), rows);
  // Extreme floats: differences overflow or vanish.
  Compare(*ops, {3e38f, -3e38f, 0, 1e-40f, -1e-40f, 3e38f}, rows);
}

TEST_CASE("Sample: temperatures whose inverse overflows a float") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  auto ops = MakeCpuOpsFor(target, 1);
  for (const float temperature : {1e-45f, 2.9e-39f, 1e-30f}) {
    std::vector<SampleRow> rows = ManyRows(20, 5);
    for (SampleRow& row : rows) row.params.temperature = temperature;
    Compare(*ops, {1, 3, 2, 3}, rows);
    Compare(*ops, std::vector<float>(40, 5.0f), rows);
    Compare(*ops, {kNan, -2, -kInf, -2, kInf, kInf}, rows);
  }
}

TEST_CASE("Sample applies bias, forbidden ids and penalties like the reference") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  auto ops = MakeCpuOpsFor(target, 2);
  const std::vector<float> logits = RandomFloats(300, 9, 2);
  const std::vector<int32_t> bias_ids = {4, 299, 300, -1, 4, 8};
  const std::vector<float> bias_values = {3, 5, 1, 1, 2, -kInf};
  const std::vector<int32_t> forbidden = {0, 17, 298, 555};
  std::vector<TokenCount> counts;
  for (int32_t id = 3; id < 310; id += 4) counts.push_back({id, id % 3});
  std::vector<SampleRow> rows = ManyRows(80, 11);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i % 2 == 0) rows[i].bias_ids = bias_ids, rows[i].bias_values = bias_values;
    if (i % 3 == 0) rows[i].forbidden = forbidden;
    if (i % 5 < 3) {
      rows[i].counts = counts;
      rows[i].params.repetition_penalty = i % 4 == 0 ? 1.0f : 1.3f;
      rows[i].params.frequency_penalty = i % 7 == 0 ? 0.0f : 0.4f;
      rows[i].params.presence_penalty = i % 6 == 0 ? 0.0f : -0.6f;
    }
    if (i % 11 == 0) rows[i].given_token = 123;
  }
  Compare(*ops, logits, rows);
}

TEST_CASE("Sample applies a mask like the reference") {
  const std::string target = GENERATE(from_range(RunnableTargets()));
  const size_t vocab = GENERATE(31, 32, 33, 300);
  auto ops = MakeCpuOpsFor(target, 2);
  std::vector<float> logits = RandomFloats(vocab, 9, 2);
  logits[5] = kNan;
  std::mt19937 random(3);
  std::vector<std::vector<uint32_t>> masks(40, std::vector<uint32_t>((vocab + 31) / 32));
  for (size_t i = 0; i < masks.size(); ++i) {
    for (uint32_t& word : masks[i]) {
      word = i % 3 == 0 ? random() : i % 3 == 1 ? random() & random() & random() & random() : 0;
    }
    if (i % 5 == 0) masks[i][0] = ~uint32_t{0};
    if (i % 3 == 2)
      masks[i][0] = uint32_t{1} << i % 31;  // token 5 is among them and its logit is NaN
  }
  const std::vector<int32_t> forbidden = {0, 17, 29};
  std::vector<SampleRow> rows = ManyRows(static_cast<int>(masks.size()), 17);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].allowed = masks[i];
    if (i % 4 == 0) rows[i].forbidden = forbidden;
  }
  Compare(*ops, logits, rows);
  logits.assign(vocab, -kInf);
  Compare(*ops, logits, rows);
}

TEST_CASE("A row's token does not depend on other rows or threads") {
  auto one = MakeCpuOps({.n_threads = 1}), three = MakeCpuOps({.n_threads = 3});
  const std::vector<SampleRow> rows = ManyRows(40, 5);
  const std::vector<float> logits = RandomFloats(rows.size() * 2000, 6, 2);
  std::vector<SampleRow> plain = rows;
  for (SampleRow& row : plain) row.n_logprobs = -1;
  const std::vector<SampledToken> together = SampleAll(*three, logits, plain);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float> row(logits.begin() + i * 2000, logits.begin() + (i + 1) * 2000);
    CHECK(SampleAll(*one, row, {plain[i]})[0].token == together[i].token);
  }
}

// Pearson's chi-squared test against the exact probabilities. The seeds and thus the outcome are
// fixed.
TEST_CASE("Draws follow the distribution") {
  auto ops = MakeCpuOps({.n_threads = 2});
  const std::vector<float> logits = {1.0f, 0.2f, -0.5f, 2.0f, 0.0f, 1.5f, -2.0f, 0.7f};
  struct Case {
    SampleRow row;
    std::vector<bool> kept;
  };
  const std::vector<bool> all(8, true);
  const Case test = GENERATE_COPY(Case{{.params = {.temperature = 1}}, all},
                                  Case{{.params = {.temperature = 0.6f}}, all},
                                  Case{{.params = {.temperature = 1, .top_k = 3}},
                                       {true, false, false, true, false, true, false, false}},
                                  Case{{.params = {.temperature = 1, .top_p = 0.6f}},
                                       {false, false, false, true, false, true, false, false}},
                                  Case{{.params = {.temperature = 1, .min_p = 0.2f}},
                                       {true, false, false, true, false, true, false, true}},
                                  // The standard deviation is 1.17.
                                  Case{{.params = {.temperature = 1, .top_n_sigma = 1}},
                                       {true, false, false, true, false, true, false, false}});
  std::vector<double> probability(8);
  double total = 0;
  for (size_t i = 0; i < 8; ++i) {
    probability[i] =
        test.kept[i] ? std::exp(logits[i] / static_cast<double>(test.row.params.temperature)) : 0;
    total += probability[i];
  }
  constexpr int kDraws = 20000;
  std::vector<int> count(8);
  std::vector<SampleRow> rows(kDraws, test.row);
  std::vector<float> many;
  for (int i = 0; i < kDraws; ++i) {
    rows[i].seed = 42;
    rows[i].position = static_cast<uint64_t>(i);
    many.insert(many.end(), logits.begin(), logits.end());
  }
  for (const SampledToken& token : SampleAll(*ops, many, rows)) ++count[token.token];
  double chi_square = 0;
  for (size_t i = 0; i < 8; ++i) {
    if (!test.kept[i]) {
      CHECK(count[i] == 0);
      continue;
    }
    const double expected = kDraws * probability[i] / total;
    chi_square += (count[i] - expected) * (count[i] - expected) / expected;
  }
  CHECK(chi_square < 24.3);  // 7 degrees of freedom, p = 0.001; the bound for fewer is lower
}

}  // namespace
}  // namespace stagecoach::kernels
