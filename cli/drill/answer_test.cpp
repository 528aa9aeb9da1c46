#include "cli/drill/answer.h"

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <string>

namespace stagecoach::drill {
namespace {

v1::GenerateResponse Piece(std::initializer_list<int32_t> ids, const std::string& text,
                           uint32_t index = 0) {
  v1::GenerateResponse piece;
  piece.set_index(index);
  piece.set_text(text);
  for (const int32_t id : ids) piece.add_token_ids(id);
  return piece;
}

Answer Of(std::initializer_list<v1::GenerateResponse> pieces) {
  Answer answer;
  for (const v1::GenerateResponse& piece : pieces) answer.Add(piece);
  return answer;
}

TEST_CASE("the borders of messages do not count") {
  CHECK(Of({Piece({1, 2}, "ab"), Piece({3}, "c")}) == Of({Piece({1}, "a"), Piece({2, 3}, "bc")}));
}

TEST_CASE("tokens, texts, log-probabilities, choices and ends count") {
  const Answer answer = Of({Piece({1, 2}, "ab")});
  CHECK_FALSE(answer == Of({Piece({1, 3}, "ab")}));
  CHECK_FALSE(answer == Of({Piece({1, 2}, "ac")}));
  CHECK_FALSE(answer == Of({Piece({1, 2}, "ab", 1)}));
  v1::GenerateResponse with_logprob = Piece({1, 2}, "ab");
  with_logprob.add_logprobs()->mutable_chosen()->set_logprob(-1);
  CHECK_FALSE(answer == Of({with_logprob}));
  v1::GenerateResponse ended = Piece({1, 2}, "ab");
  ended.set_finish_reason(v1::FINISH_REASON_LENGTH);
  CHECK_FALSE(answer == Of({ended}));
}

TEST_CASE("an answer that was cut off begins the whole one; a repeated token does not") {
  const Answer whole = Of({Piece({1, 2, 3}, "abc"), Piece({4}, "d", 1)});
  CHECK(Of({}).Begins(whole));
  CHECK(Of({Piece({1, 2}, "ab")}).Begins(whole));
  CHECK(whole.Begins(whole));
  CHECK_FALSE(Of({Piece({1, 2, 2}, "abb")}).Begins(whole));
  CHECK_FALSE(Of({Piece({1, 2, 3, 4}, "abcd")}).Begins(whole));
  CHECK_FALSE(Of({Piece({1}, "a", 2)}).Begins(whole));
}

}  // namespace
}  // namespace stagecoach::drill
