#include "worker/model/last_rows.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

using kernels::StepSeq;

kernels::StepBatch Step(const std::vector<StepSeq>& seqs) {
  int32_t n_tokens = 0;
  for (const StepSeq& seq : seqs) n_tokens += seq.n_tokens;
  return {.seqs = seqs, .n_tokens = n_tokens};
}

TEST_CASE("selected rows become a step with one row per sequence") {
  const std::vector<StepSeq> seqs = {{.slot = 4, .position = 9, .n_tokens = 1},
                                     {.slot = 0, .position = 100, .n_tokens = 20},
                                     {.slot = 7, .position = 0, .n_tokens = 12}};
  LastRows last(8);
  CHECK_FALSE(last.chosen());
  const std::vector<int32_t> rows = {0, 32};
  REQUIRE(last.Choose(Step(seqs), rows));
  const kernels::StepBatch step = last.step();
  CHECK(step.n_tokens == 2);
  CHECK(step.token_ids.empty());
  CHECK(step.new_blocks.empty());
  REQUIRE(step.seqs.size() == 2);
  CHECK((step.seqs[0].slot == 4 && step.seqs[0].position == 9 && step.seqs[0].n_tokens == 1));
  CHECK((step.seqs[1].slot == 7 && step.seqs[1].position == 11 && step.seqs[1].n_tokens == 1));
  CHECK((last.IndexOf(0) == 0 && last.IndexOf(32) == 1));
  last.ChooseAll();
  CHECK_FALSE(last.chosen());
}

TEST_CASE("the middle of a prompt selects no row") {
  LastRows last(8);
  REQUIRE(last.Choose(Step({{.slot = 1, .position = 512, .n_tokens = 64}}), {}));
  CHECK(last.rows().empty());
  CHECK(last.step().n_tokens == 0);
}

TEST_CASE("all rows stay if few are saved or a sequence needs several") {
  const std::vector<StepSeq> prompts = {{.slot = 0, .position = 0, .n_tokens = 40},
                                        {.slot = 1, .position = 0, .n_tokens = 40}};
  LastRows last(8);
  const auto chooses = [&](const std::vector<StepSeq>& seqs, const std::vector<int32_t>& rows) {
    return last.Choose(Step(seqs), rows);
  };
  CHECK(chooses(prompts, {39, 79}));
  CHECK_FALSE(chooses(prompts, {38, 39, 79}));
  CHECK_FALSE(last.chosen());
  CHECK_FALSE(chooses({{.slot = 0, .position = 0, .n_tokens = 15}}, {14}));
  CHECK_FALSE(chooses({{.slot = 0, .position = 3, .n_tokens = 1}}, {0}));
  std::vector<StepSeq> decodes;
  for (int32_t i = 0; i < 40; ++i) decodes.push_back({.slot = i, .position = 9, .n_tokens = 1});
  CHECK_FALSE(chooses(decodes, {3, 31}));
  std::vector<StepSeq> mixed;  // 30 decodes and a prefill chunk
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 30; ++i) {
    mixed.push_back({.slot = i, .position = 5, .n_tokens = 1});
    rows.push_back(i);
  }
  mixed.push_back({.slot = 30, .position = 0, .n_tokens = 20});
  CHECK_FALSE(chooses(mixed, rows));
  mixed.back().n_tokens = 40;
  CHECK(chooses(mixed, rows));
}

}  // namespace
}  // namespace stagecoach::worker
