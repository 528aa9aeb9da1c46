#include "router/frontend/http/responses/response_answer.h"

#include <boost/json.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/responses/response_turn.h"
#include "router/frontend/http/responses/responses_request.h"
#include "router/frontend/http/testing/named_events.h"
#include "router/frontend/http/testing/pieces.h"
#include "router/text/output_channels.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

ApiRequest ResponsesRequest(const std::string& fields = "") {
  auto request = ParseResponsesRequest(R"({"input": "x")" + fields + "}");
  REQUIRE(request.ok());
  return *std::move(request);
}

v1::GenerateResponse Ended(v1::GenerateResponse message, v1::FinishReason reason) {
  message.set_finish_reason(reason);
  message.mutable_usage()->set_cached_tokens(4);
  message.mutable_usage()->mutable_stored_tokens()->set_host(3);
  return message;
}

// Checks the order of events and that deltas add up; returns the last response.
json::object CheckEvents(const std::string& text) {
  const std::vector<json::object> events = NamedEvents(text);
  json::array items;
  std::string deltas;
  for (size_t i = 0; i < events.size(); ++i) {
    const json::object& event = events[i];
    CHECK(event.at("sequence_number") == i);
    const std::string type(event.at("type").as_string());
    if (type == "response.output_item.added") {
      CHECK(event.at("output_index") == items.size());
      CHECK(event.at("item").at("status") == "in_progress");
      items.push_back(event.at("item"));
      deltas.clear();
    } else if (type.ends_with(".delta")) {
      CHECK(event.at("item_id") == items.back().at("id"));
      deltas += std::string_view(event.at("delta").as_string());
    } else if (const json::value* whole = event.if_contains("text")) {
      CHECK(whole->as_string() == deltas);
    } else if (const json::value* arguments = event.if_contains("arguments")) {
      CHECK(arguments->as_string() == deltas);
      CHECK(event.at("name") == items.back().at("name"));
    } else if (type == "response.output_item.done") {
      CHECK(event.at("item").at("id") == items.back().at("id"));
      items.back() = event.at("item");
    }
  }
  CHECK(events.at(0).at("type") == "response.created");
  CHECK(events.at(1).at("type") == "response.in_progress");
  CHECK(events.at(0).at("response").at("status") == "in_progress");
  json::object last = events.back().at("response").as_object();
  CHECK(last.at("output") == items);
  return last;
}

TEST_CASE("a response with text") {
  const ServedModel model = TestModel();
  const ApiRequest request = ResponsesRequest(R"(, "metadata": {"a": "b"})");
  ResponseAnswer answer(request, model, "id", 1700000000);
  answer.Collect(0, WithPrompt(Piece("Hä\"")));
  answer.Collect(0, Ended(Piece("llo", 2), v1::FINISH_REASON_STOP));
  const json::value whole = json::parse(answer.Whole());
  CHECK(whole.at("id") == "resp_id");
  CHECK(whole.at("object") == "response");
  CHECK(whole.at("status") == "completed");
  CHECK(whole.at("metadata").at("a") == "b");
  CHECK(whole.at("output") ==
        json::parse(R"([{"id": "msg_id_0", "type": "message", "status": "completed",
                         "role": "assistant", "content": [
                           {"type": "output_text", "text": "Hä\"llo", "annotations": [],
                            "logprobs": []}]}])"));
  CHECK(whole.at("usage") == json::parse(R"({"input_tokens": 7, "output_tokens": 3,
                                            "total_tokens": 10,
                                            "input_tokens_details": {
                                              "cached_tokens": 4, "cache_write_tokens": 0,
                                              "stored_tokens": {"host": 3, "disk": 0, "store": 0}},
                                            "output_tokens_details": {"reasoning_tokens": 0}})"));
}

TEST_CASE("reasoning, messages and calls are items, wherever the text is cut") {
  constexpr std::string_view kText =
      "<think>Lök it up.</think>\n\nOne moment.\n<tool_call>{\"name\": \"f\", "
      "\"arguments\": {\"a\": [1, \"}\"]}}</tool_call><tool_call>{\"name\": \"n__g\"}</tool_call>";
  const ServedModel model = TestModel();
  const ApiRequest request = ResponsesRequest(R"(, "tools": [
      {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}])");
  OutputFormat format{.separate_reasoning = true};
  format.tools = {.family = ToolFamily::kHermes};
  for (size_t cut = 0; cut <= kText.size(); ++cut) {
    if (cut < kText.size() && (kText[cut] & 0xC0) == 0x80) continue;  // pieces are whole characters
    CAPTURE(cut);
    OutputChannels channels(&format, "key");
    v1::GenerateResponse first = WithPrompt(Piece(""));
    channels.Push(kText.substr(0, cut), &first);
    v1::GenerateResponse last = Ended(Piece(""), v1::FINISH_REASON_TOOL_CALLS);
    channels.Push(kText.substr(cut), &last);
    channels.End(&last);
    ResponseAnswer events(request, model, "id", 1);
    ResponseAnswer answer(request, model, "id", 1);
    std::string text = events.Chunks(0, first);
    text += events.Chunks(0, last);
    text += events.LastChunks();
    answer.Collect(0, first);
    answer.Collect(0, last);
    const json::object whole = json::parse(answer.Whole()).as_object();
    CHECK(CheckEvents(text) == whole);
    const json::array& output = whole.at("output").as_array();
    REQUIRE(output.size() == 4);
    CHECK(output[0].at("type") == "reasoning");
    CHECK(output[0].at("content").at(0).at("text") == "Lök it up.");
    CHECK(output[1].at("content").at(0).at("text") == "One moment.");
    CHECK(output[2].at("type") == "function_call");
    CHECK(output[2].at("name") == "f");
    CHECK(output[2].at("arguments") == R"({"a": [1, "}"]})");
    CHECK_FALSE(output[2].as_object().contains("namespace"));
    CHECK(output[3].at("name") == "g");
    CHECK(output[3].at("namespace") == "n");
    CHECK(output[3].at("arguments") == "{}");
  }
}

TEST_CASE("a response that is cut off is incomplete, and one that fails has failed") {
  const ServedModel model = TestModel();
  const ApiRequest request = ResponsesRequest(R"(, "stream": true)");
  ResponseAnswer cut(request, model, "id", 1);
  std::string text = cut.Chunks(0, WithPrompt(Piece("Hi")));
  text += cut.Chunks(0, Ended(Piece("!"), v1::FINISH_REASON_LENGTH));
  text += cut.LastChunks();
  const json::object response = CheckEvents(text);
  CHECK(response.at("status") == "incomplete");
  CHECK(response.at("incomplete_details").at("reason") == "max_output_tokens");
  CHECK(response.at("output").at(0).at("status") == "incomplete");
  CHECK(NamedEvents(text).back().at("type") == "response.incomplete");

  ResponseAnswer failed(request, model, "id", 1);
  failed.Chunks(0, WithPrompt(Piece("Hi")));
  const auto events = NamedEvents(failed.FailureChunks(absl::UnavailableError("stage: lost")));
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("type") == "response.failed");
  CHECK(events[0].at("response").at("status") == "failed");
  CHECK(events[0].at("response").at("error").at("message") == "stage: lost");
}

TEST_CASE("a finished response is kept with what it said") {
  const ServedModel model = TestModel();
  ResponseStore store({});
  MemoryBudget budget(1000);
  ApiRequest request = ResponsesRequest();
  request.responses.turn = std::make_shared<ResponseTurn>(&store, Caller{}, "resp_id", request.chat,
                                                          MemoryBudget::Lease(&budget));
  ResponseAnswer answer(request, model, "id", 1);
  v1::GenerateResponse message = Ended(WithPrompt(Piece("Hi")), v1::FINISH_REASON_TOOL_CALLS);
  message.set_reasoning("Hm");
  v1::ToolCallDelta& call = *message.add_tool_calls();
  call.set_id("1");
  call.set_name("f");
  call.set_arguments("{}");
  answer.Collect(0, message);
  CHECK_FALSE(store.Find({}, "resp_id").ok());
  const std::string whole = answer.Whole();
  MemoryBudget reading(100'000);
  MemoryBudget::Lease lease(&reading);
  CHECK(store.Get({}, "resp_id", lease)->json == whole);
  const auto kept = store.Find({}, "resp_id");
  REQUIRE(kept.ok());
  REQUIRE(kept->messages_size() == 2);
  CHECK(kept->messages(0).content() == "x");
  CHECK(kept->messages(1).role() == "assistant");
  CHECK(kept->messages(1).reasoning() == "Hm");
  CHECK(kept->messages(1).content() == "Hi");
  CHECK(kept->messages(1).tool_calls(0).name() == "f");
}

}  // namespace
}  // namespace stagecoach::router::http
