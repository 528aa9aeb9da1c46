#include "router/frontend/http/responses/response_turn.h"

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/responses/responses_request.h"

namespace stagecoach::router::http {
namespace {

// What the model gets to read, one line per message.
std::string Lines(const v1::ChatRequest& chat) {
  std::string lines;
  for (const v1::ChatMessage& message : chat.messages()) {
    lines += message.role() + ": " + message.content() + "\n";
  }
  return lines;
}

TEST_CASE("a response continues an earlier one, without its instructions") {
  ResponseStore store({});
  MemoryBudget memory(10'000);
  const auto ask = [&](const std::string& id, const std::string& fields, const std::string& said) {
    auto request = ParseResponsesRequest("{" + fields + "}");
    REQUIRE(request.ok());
    REQUIRE(ContinueResponse(store, {}, &memory, id, *request).ok());
    v1::ChatMessage answer;
    answer.set_role("assistant");
    answer.set_content(said);
    if (request->responses.turn != nullptr) {
      CHECK(memory.used_bytes() > 0);
      request->responses.turn->Finish(answer, "{}");
    }
    return Lines(request->chat);
  };
  CHECK(ask("1", R"("input": "A", "instructions": "I")", "B") == "system: I\nuser: A\n");
  const std::string second = R"("input": "C", "previous_response_id": "1")";
  CHECK(ask("2", second + R"(, "instructions": "J")", "D") ==
        "system: J\nuser: A\nassistant: B\nuser: C\n");
  CHECK(ask("3", R"("input": "E", "previous_response_id": "2")", "F") ==
        "user: A\nassistant: B\nuser: C\nassistant: D\nuser: E\n");
  // Another branch of the same conversation, which is not kept.
  CHECK(ask("4", second + R"(, "store": false)", "") == "user: A\nassistant: B\nuser: C\n");
  CHECK(memory.used_bytes() == 0);
  auto request = ParseResponsesRequest(R"({"input": "x", "previous_response_id": "4"})");
  CHECK(absl::IsInvalidArgument(ContinueResponse(store, {}, &memory, "5", *request)));
}

TEST_CASE("a response that is to be kept needs memory") {
  ResponseStore store({});
  MemoryBudget memory(100);
  const std::string text(200, 'x');
  auto request = ParseResponsesRequest(R"({"input": ")" + text + R"("})");
  CHECK(absl::IsResourceExhausted(ContinueResponse(store, {}, &memory, "1", *request)));
  request = ParseResponsesRequest(R"({"store": false, "input": ")" + text + R"("})");
  CHECK(ContinueResponse(store, {}, &memory, "1", *request).ok());
}

}  // namespace
}  // namespace stagecoach::router::http
