#include "router/frontend/http/anthropic/messages_answer.h"

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/anthropic/messages_request.h"
#include "router/frontend/http/testing/named_events.h"
#include "router/frontend/http/testing/pieces.h"
#include "router/text/output_channels.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

ApiRequest MessagesRequest(const std::string& fields = "") {
  auto request =
      ParseMessagesRequest(R"({"messages": [{"role": "user", "content": "x"}])" + fields + "}");
  REQUIRE(request.ok());
  return *std::move(request);
}

v1::GenerateResponse AtEnd(v1::GenerateResponse message, v1::FinishReason reason,
                           const std::string& stop = "") {
  message.set_finish_reason(reason);
  message.set_stop_reason(stop);
  message.mutable_usage()->set_cached_tokens(4);
  return message;
}

// Puts a message together from its events, as clients do.
json::object Assembled(const std::vector<json::object>& events) {
  json::object message;
  std::string partial;
  size_t n_open = 0;
  for (const json::object& event : events) {
    const json::string& type = event.at("type").as_string();
    const auto block = [&]() -> json::object& {
      return message.at("content").as_array().at(event.at("index").to_number<size_t>()).as_object();
    };
    if (type == "message_start") {
      message = event.at("message").as_object();
    } else if (type == "content_block_start") {
      CHECK(n_open++ == 0);
      CHECK(event.at("index") == message.at("content").as_array().size());
      message.at("content").as_array().push_back(event.at("content_block"));
      partial.clear();
    } else if (type == "content_block_delta") {
      const json::object& delta = event.at("delta").as_object();
      for (const char* name : {"text", "thinking", "signature"}) {
        if (const json::value* text = delta.if_contains(name)) {
          block()[name] = std::string(block().at(name).as_string()) + text->as_string().c_str();
        }
      }
      if (const json::value* text = delta.if_contains("partial_json")) {
        partial += text->as_string().c_str();
      }
    } else if (type == "content_block_stop") {
      CHECK(--n_open == 0);
      if (block().at("type") == "tool_use") block()["input"] = json::parse(partial);
    } else if (type == "message_delta") {
      for (const auto& [name, value] : event.at("delta").as_object()) message[name] = value;
      message["usage"] = event.at("usage");
    }
  }
  CHECK(n_open == 0);
  return message;
}

TEST_CASE("a message with text") {
  const ServedModel model = TestModel();
  const ApiRequest request = MessagesRequest();
  MessagesAnswer answer(request, model, "id");
  answer.Collect(0, WithPrompt(Piece("Hä\"")));
  answer.Collect(0, AtEnd(Piece("llo", 2), v1::FINISH_REASON_STOP, "1"));
  CHECK(answer.Whole() ==
        R"({"id":"msg_id","type":"message","role":"assistant","model":"test-model",)"
        R"("content":[{"type":"text","text":"Hä\"llo"}],"stop_reason":"end_turn",)"
        R"("stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,)"
        R"("cache_read_input_tokens":4,"output_tokens":3}})");
}

TEST_CASE("the events of a message with text") {
  const ServedModel model = TestModel();
  const ApiRequest request = MessagesRequest(R"(, "stream": true)");
  MessagesAnswer answer(request, model, "id");
  std::string text = answer.Chunks(0, WithPrompt(Piece("", 1)));
  CHECK(answer.Chunks(0, Piece("")).empty());  // no whole UTF-8 character yet
  text += answer.Chunks(0, Piece("Hi"));
  text += answer.Chunks(0, AtEnd(Piece("!"), v1::FINISH_REASON_LENGTH));
  text += answer.LastChunks();
  CHECK(text ==
        "event: message_start\n"
        R"(data: {"type":"message_start","message":{"id":"msg_id","type":"message",)"
        R"("role":"assistant","model":"test-model","content":[],"stop_reason":null,)"
        R"("stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":0,)"
        R"("cache_read_input_tokens":0,"output_tokens":0}}})"
        "\n\nevent: ping\n"
        R"(data: {"type":"ping"})"
        "\n\nevent: content_block_start\n"
        R"(data: {"type":"content_block_start","index":0,"content_block":)"
        R"({"type":"text","text":""}})"
        "\n\nevent: content_block_delta\n"
        R"(data: {"type":"content_block_delta","index":0,"delta":)"
        R"({"type":"text_delta","text":"Hi"}})"
        "\n\nevent: content_block_delta\n"
        R"(data: {"type":"content_block_delta","index":0,"delta":)"
        R"({"type":"text_delta","text":"!"}})"
        "\n\nevent: content_block_stop\n"
        R"(data: {"type":"content_block_stop","index":0})"
        "\n\nevent: message_delta\n"
        R"(data: {"type":"message_delta","delta":{"stop_reason":"max_tokens",)"
        R"("stop_sequence":null},"usage":{"input_tokens":3,"cache_creation_input_tokens":0,)"
        R"("cache_read_input_tokens":4,"output_tokens":4}})"
        "\n\nevent: message_stop\n"
        R"(data: {"type":"message_stop"})"
        "\n\n");
}

TEST_CASE("thinking, text and calls are blocks, wherever the text is cut") {
  constexpr std::string_view kText =
      "<think>Lök it up.</think>\n\nOne moment.\n<tool_call>{\"name\": \"f\", "
      "\"arguments\": {\"a\": [1, \"}\"]}}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>";
  const ServedModel model = TestModel();
  const ApiRequest streamed = MessagesRequest(R"(, "stream": true)");
  const ApiRequest whole = MessagesRequest();
  OutputFormat format{.separate_reasoning = true};
  format.tools = {.family = ToolFamily::kHermes};
  for (size_t cut = 0; cut <= kText.size(); ++cut) {
    if (cut < kText.size() && (kText[cut] & 0xC0) == 0x80) continue;  // pieces are whole characters
    CAPTURE(cut);
    OutputChannels channels(&format, "key");
    v1::GenerateResponse first = WithPrompt(Piece(""));
    channels.Push(kText.substr(0, cut), &first);
    v1::GenerateResponse last = AtEnd(Piece(""), v1::FINISH_REASON_TOOL_CALLS);
    channels.Push(kText.substr(cut), &last);
    channels.End(&last);
    MessagesAnswer events(streamed, model, "id");
    MessagesAnswer answer(whole, model, "id");
    std::string text = events.Chunks(0, first);
    text += events.Chunks(0, last);
    text += events.LastChunks();
    answer.Collect(0, first);
    answer.Collect(0, last);
    const json::object message = json::parse(answer.Whole()).as_object();
    CHECK(Assembled(NamedEvents(text)) == message);
    CHECK(message.at("stop_reason") == "tool_use");
    const json::array& content = message.at("content").as_array();
    REQUIRE(content.size() == 4);
    CHECK(
        content[0] ==
        json::value({{"type", "thinking"}, {"thinking", "Lök it up."}, {"signature", "unsigned"}}));
    CHECK(content[1] == json::value({{"type", "text"}, {"text", "One moment."}}));
    CHECK(content[2].at("name") == "f");
    CHECK(content[2].at("input") == json::parse(R"({"a": [1, "}"]})"));
    CHECK(content[3].at("input") == json::object());
  }
}

TEST_CASE("why a message ends") {
  const ServedModel model = TestModel();
  const ApiRequest request = MessagesRequest(R"(, "stop_sequences": ["X"])");
  const auto ends = [&](v1::FinishReason reason, const std::string& stop) {
    MessagesAnswer answer(request, model, "id");
    answer.Collect(0, AtEnd(WithPrompt(Piece("a")), reason, stop));
    const json::value whole = json::parse(answer.Whole());
    return std::pair(whole.at("stop_reason"), whole.at("stop_sequence"));
  };
  CHECK(ends(v1::FINISH_REASON_STOP, "X") ==
        std::pair(json::value("stop_sequence"), json::value("X")));
  CHECK(ends(v1::FINISH_REASON_STOP, "1") == std::pair(json::value("end_turn"), json::value()));
  CHECK(ends(v1::FINISH_REASON_LENGTH, "") == std::pair(json::value("max_tokens"), json::value()));
}

TEST_CASE("a call that was cut off has no input") {
  const ServedModel model = TestModel();
  const ApiRequest request = MessagesRequest();
  MessagesAnswer answer(request, model, "id");
  v1::GenerateResponse message = AtEnd(WithPrompt(Piece("")), v1::FINISH_REASON_LENGTH);
  v1::ToolCallDelta& call = *message.add_tool_calls();
  call.set_id("1");
  call.set_name("f");
  call.set_arguments("{\"a\": ");
  answer.Collect(0, message);
  CHECK(json::parse(answer.Whole()).at("content").at(0).at("input") == json::object());
}

TEST_CASE("a stream of a message that fails ends with an error") {
  const ServedModel model = TestModel();
  const ApiRequest request = MessagesRequest(R"(, "stream": true)");
  MessagesAnswer answer(request, model, "id");
  CHECK(answer.FailureChunks(absl::UnavailableError("stage: lost")) ==
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
        "\"message\":\"stage: lost\"}}\n\n");
}

}  // namespace
}  // namespace stagecoach::router::http
