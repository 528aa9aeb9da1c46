// Compares final hidden states of a tiny embedding model with those of transformers, and the bits
// of different stages and chunks with each other. See make_pooled.py.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/golden/golden_backends.h"
#include "tests/golden/pipeline_run.h"

namespace stagecoach {
namespace {

namespace json = boost::json;

using Rows = std::vector<std::vector<float>>;

struct PooledCase {
  std::vector<int32_t> ids;
  std::vector<float> last, mean;
};

std::string ModelDir() { return std::string(STAGECOACH_GOLDEN_POOLED) + "/qwen3-embedding"; }

std::vector<PooledCase> Cases() {
  std::ifstream file(ModelDir() + "/pooled.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<PooledCase> cases;
  const json::value golden = json::parse(text);
  for (const json::value& one : golden.at("cases").as_array()) {
    cases.push_back({.ids = json::value_to<std::vector<int32_t>>(one.at("ids")),
                     .last = json::value_to<std::vector<float>>(one.at("last")),
                     .mean = json::value_to<std::vector<float>>(one.at("mean"))});
  }
  return cases;
}

std::unique_ptr<PipelineRun> Load(kernels::Ops* ops, int32_t n_stages) {
  auto run =
      PipelineRun::Load({.model_dir = ModelDir(), .n_stages = n_stages, .dtype = DType::kF32}, ops);
  INFO(run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

// The vector of length 1 in the direction of the mean of `rows`.
std::vector<float> Unit(const Rows& rows) {
  std::vector<double> sum(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) sum[i] += static_cast<double>(row[i]);
  }
  double squares = 0;
  for (const double value : sum) squares += value * value;
  std::vector<float> unit;
  for (const double value : sum) unit.push_back(static_cast<float>(value / std::sqrt(squares)));
  return unit;
}

void RequireClose(const std::vector<float>& ours, const std::vector<float>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) REQUIRE(std::abs(ours[i] - theirs[i]) < 1e-4f);
}

// The row of the prompt's last token, while the last layer computes it alone.
std::vector<float> LastRow(PipelineRun& run, const std::vector<int32_t>& ids) {
  TestSequence sequence = run.NewSequence(ids);
  const auto n_tokens = static_cast<int32_t>(ids.size());
  const PipelineRun::Chunk chunk{&sequence, n_tokens};
  const std::vector<int32_t> rows = {n_tokens - 1};
  run.Step({&chunk, 1}, worker::LogitRows(rows));
  return run.Logits(rows).front();
}

TEST_CASE("hidden states agree with transformers, at 1, 2 and 4 stages and in chunks") {
  for (Backend& backend : Backends()) {
    INFO(backend.name);
    const std::unique_ptr<PipelineRun> one = Load(backend.ops.get(), 1);
    const std::unique_ptr<PipelineRun> two = Load(backend.ops.get(), 2);
    const std::unique_ptr<PipelineRun> four = Load(backend.ops.get(), 4);
    for (const PooledCase& golden : Cases()) {
      TestSequence whole = one->NewSequence(golden.ids);
      const Rows rows = one->Prefill(&whole, 512);
      RequireClose(Unit({rows.back()}), golden.last);
      RequireClose(Unit(rows), golden.mean);
      TestSequence chunked = two->NewSequence(golden.ids);
      RequireClose(Unit(two->Prefill(&chunked, 19)), golden.mean);
      RequireClose(Unit({LastRow(*four, golden.ids)}), golden.last);
    }
  }
}

TEST_CASE("stages and chunks change no bit of a hidden state") {
  for (Backend& backend : SameBitsBackends()) {
    INFO(backend.name);
    const std::unique_ptr<PipelineRun> one = Load(backend.ops.get(), 1);
    const std::unique_ptr<PipelineRun> four = Load(backend.ops.get(), 4);
    for (const PooledCase& golden : Cases()) {
      TestSequence whole = one->NewSequence(golden.ids);
      TestSequence chunked = four->NewSequence(golden.ids);
      const Rows rows = one->Prefill(&whole, 512);
      REQUIRE(four->Prefill(&chunked, 7) == rows);
      REQUIRE(LastRow(*four, golden.ids) == rows.back());
    }
  }
}

}  // namespace
}  // namespace stagecoach
