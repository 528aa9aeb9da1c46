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

TEST_CASE("blocks count only if all stages with recurrent layers have the state at their end") {
  struct Case {
    uint32_t n[2];
    bool at_state[2];
    uint32_t expected;
  };
  // The last stage has no recurrent layer in some cases.
  for (const Case& one : {Case{{4, 4}, {true, true}, 4}, Case{{4, 6}, {true, true}, 0},
                          Case{{4, 0}, {true, false}, 0}, Case{{4, 6}, {true, false}, 4},
                          Case{{4, 3}, {true, false}, 0}}) {
    FetchAnswers answers(2);
    std::optional<v1::KvFetched> of_all;
    answers.Ask(1);
    for (size_t stage = 0; stage < 2; ++stage) {
      v1::KvFetched answer = AnswerOf(1, one.n[stage]);
      answer.set_ends_at_state(one.at_state[stage]);
      CHECK(answers.Answer(stage, answer, of_all));
    }
    REQUIRE(of_all);
    CHECK(of_all->n_blocks() == one.expected);
  }
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
