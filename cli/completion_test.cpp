#include "cli/completion.h"

#include <catch2/catch_test_macros.hpp>

#include "cli/progress.h"
#include "common/rpc/finish_reason.h"

namespace stagecoach::cli {
namespace {

v1::GenerateResponse Piece(uint32_t index, const std::string& text, int32_t token_id) {
  v1::GenerateResponse piece;
  piece.set_index(index);
  piece.set_text(text);
  piece.add_token_ids(token_id);
  return piece;
}

TEST_CASE("Interleaved choices are assembled by index") {
  Completion completion;
  completion.Add(Piece(1, "b", 10));
  completion.Add(Piece(0, "a", 11));
  v1::GenerateResponse last = Piece(1, "B", 12);
  last.set_finish_reason(v1::FINISH_REASON_STOP);
  last.set_stop_reason("###");
  completion.Add(last);
  REQUIRE(completion.choices().size() == 2);
  CHECK(completion.choices()[0].text == "a");
  CHECK(completion.choices()[0].finish_reason == v1::FINISH_REASON_UNSPECIFIED);
  CHECK(completion.choices()[1].text == "bB");
  CHECK(completion.choices()[1].token_ids == std::vector<int32_t>{10, 12});
  CHECK(FinishReasonName(completion.choices()[1].finish_reason) == "stop");
  CHECK(completion.choices()[1].stop_reason == "###");
}

TEST_CASE("Progress shows the completed share") {
  using std::chrono::seconds;
  CHECK(ProgressLine(50, 100, 1000, seconds(70)) ==
        "[############............]  50/100  14.3 tokens/s  1m10s left");
  CHECK(ProgressLine(0, 100, 0, seconds(0)) == "[........................]  0/100  0.0 tokens/s");
  CHECK(ProgressLine(100, 100, 10, seconds(1)) ==
        "[########################]  100/100  10.0 tokens/s");
}

}  // namespace
}  // namespace stagecoach::cli
