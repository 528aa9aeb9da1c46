#include "router/dispatch/fetch_answers.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

v1::KvFetched AnswerOf(uint64_t id, uint32_t n_blocks) {
  v1::KvFetched fetched;
  fetched.set_id(id);
  fetched.set_n_blocks(n_blocks);
  return fetched;
}

TEST_CASE("the last stage's answer completes a fetch, with what all stages have") {
  FetchAnswers answers(3);
  std::optional<v1::KvFetched> of_all;
  answers.Ask(1);
  answers.Ask(2);
  CHECK(answers.Answer(1, AnswerOf(1, 4), of_all));
  CHECK(answers.Answer(0, AnswerOf(2, 9), of_all));
  CHECK(answers.Answer(0, AnswerOf(1, 7), of_all));
  CHECK_FALSE(of_all);
  CHECK(answers.Answer(2, AnswerOf(1, 5), of_all));
  REQUIRE(of_all);
  CHECK(of_all->n_blocks() == 4);
}

TEST_CASE("a stage answers only what it was asked for, and once") {
  FetchAnswers answers(2);
  std::optional<v1::KvFetched> of_all;
  answers.Ask(1);
  CHECK_FALSE(answers.Answer(0, AnswerOf(2, 1), of_all));
  CHECK(answers.Answer(0, AnswerOf(1, 1), of_all));
  CHECK_FALSE(answers.Answer(0, AnswerOf(1, 1), of_all));
  CHECK(answers.Answer(1, AnswerOf(1, 1), of_all));
  CHECK_FALSE(answers.Answer(1, AnswerOf(1, 1), of_all));
}

}  // namespace
}  // namespace stagecoach::router
