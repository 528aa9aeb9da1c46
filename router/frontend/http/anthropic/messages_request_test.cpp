#include "router/frontend/http/anthropic/messages_request.h"

#include <boost/json.hpp>
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/text/request_builder.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router::http {
namespace {

ApiRequest Messages(const std::string& body) {
  auto request = ParseMessagesRequest(body);
  INFO(body);
  INFO(request.status().message());
  REQUIRE(request.ok());
  return *std::move(request);
}

std::string MessagesProblem(const std::string& fields) {
  const auto request =
      ParseMessagesRequest(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}");
  INFO(fields);
  REQUIRE_FALSE(request.ok());
  CHECK(absl::IsInvalidArgument(request.status()));
  return std::string(request.status().message());
}

std::string ContentProblem(const std::string& role, const std::string& block) {
  const auto request = ParseMessagesRequest(R"({"messages": [{"role": ")" + role +
                                            R"(", "content": [)" + block + "]}]}");
  INFO(block);
  REQUIRE_FALSE(request.ok());
  return std::string(request.status().message());
}

// Requires that both requests reach the model as the same tokens, with the same tools and sampling.
void CheckSame(const std::string& messages, const std::string& chat_completion) {
  v1::ChatRequest ours = Messages(messages).chat;
  const auto theirs = ParseChatRequest(chat_completion);
  INFO(theirs.status().message());
  REQUIRE(theirs.ok());
  CHECK(ours.sampling().clamp_max_tokens());
  ours.mutable_sampling()->clear_clamp_max_tokens();
  CHECK(ours.DebugString() == theirs->chat.DebugString());
  if (ours.has_tool_choice() && !ours.tools().empty()) return;  // the test's model has no tools
  ServedModel model = TestModel();
  model.name = ours.model().empty() ? model.name : ours.model();
  const auto a = BuildGeneration(model, ours, 0);
  const auto b = BuildGeneration(model, theirs->chat, 0);
  INFO(a.status().message());
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(*a->prompt == *b->prompt);
}

TEST_CASE("a message request becomes the request of the same chat completion") {
  CheckSame(
      R"({"model": "m", "max_tokens": 9, "system": "Be brief.", "temperature": 0.5, "top_k": 4,
          "top_p": 0.5, "stop_sequences": ["a", "b"], "metadata": {"user_id": "u"},
          "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"},
                       {"role": "user", "content": [{"type": "text", "text": "1"},
                                                    {"type": "text", "text": "2"}]}]})",
      R"({"model": "m", "max_tokens": 9, "temperature": 0.5, "top_k": 4, "top_p": 0.5,
          "stop": ["a", "b"],
          "messages": [{"role": "system", "content": "Be brief."},
                       {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"},
                       {"role": "user", "content": [{"type": "text", "text": "1"},
                                                    {"type": "text", "text": "2"}]}]})");
}

TEST_CASE("tools, their calls and their results become those of a chat completion") {
  CheckSame(
      R"({"tools": [{"name": "f", "description": "d", "cache_control": {"type": "ephemeral"},
                     "input_schema": {"type": "object", "properties": {"a": {"minimum": 2.5}}}},
                    {"type": "custom", "name": "g", "input_schema": {"type": "object"}}],
          "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
          "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [
              {"type": "thinking", "thinking": "Hm.", "signature": "s"},
              {"type": "redacted_thinking", "data": "?"}, {"type": "text", "text": "Wait."},
              {"type": "tool_use", "id": "1", "name": "f", "input": {"b": 1.0, "a": [2]}},
              {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
            {"role": "user", "content": [
              {"type": "tool_result", "tool_use_id": "1", "content": "one"},
              {"type": "tool_result", "tool_use_id": "2", "is_error": true,
               "content": [{"type": "text", "text": "t"}, {"type": "text", "text": "wo"}]},
              {"type": "text", "text": "So?"}]}]})",
      R"({"tools": [{"type": "function", "function": {
                       "name": "f", "description": "d",
                       "parameters": {"type": "object", "properties": {"a": {"minimum": 2.5}}}}},
                    {"type": "function", "function": {"name": "g",
                                                      "parameters": {"type": "object"}}}],
          "tool_choice": "auto", "parallel_tool_calls": false,
          "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Wait.", "reasoning_content": "Hm.", "tool_calls": [
              {"id": "1", "type": "function",
               "function": {"name": "f", "arguments": "{\"b\":1.0,\"a\":[2]}"}},
              {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_call_id": "2", "content": "t\nwo"},
            {"role": "user", "content": "So?"}]})");
}

TEST_CASE("a deferred tool is offered when a tool result refers to it") {
  const auto with_result = [](const std::string& content) {
    return Messages(R"({"tools": [
        {"name": "later", "description": "d", "input_schema": {"type": "object"},
         "defer_loading": true},
        {"name": "search", "input_schema": {}},
        {"name": "never", "input_schema": {}, "defer_loading": true}],
      "messages": [{"role": "user", "content": "x"},
                   {"role": "assistant", "content": [{"type": "tool_use", "id": "1",
                                                      "name": "search", "input": {}}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                                                 "content": [)" +
                    content + "]}]}]}");
  };
  const ApiRequest before = with_result(R"({"type": "text", "text": "nothing"})");
  CHECK(before.chat.tools() == R"([{"type":"function","function":{"name":"search",)"
                               R"("parameters":{}}}])");
  const std::string function =
      R"("function":{"name":"later","description":"d","parameters":{"type":"object"}}})";
  const ApiRequest request = with_result(R"({"type": "tool_reference", "tool_name": "later"})");
  CHECK(request.chat.tools() ==
        R"([{"type":"function","defer_loading":true,)" + function +
            R"(,{"type":"function","function":{"name":"search","parameters":{}}}])");
  CHECK(*request.tool_places == std::vector<size_t>{0, 1});
  CHECK(request.chat.messages(2).content() == R"({"type":"function",)" + function);
  const ApiRequest other = with_result(R"({"type": "tool_reference", "tool_name": "gone"})");
  CHECK(other.chat.messages(2).content() == "[the tool gone is not offered]");
}

TEST_CASE("a note takes the place of a picture in a tool result") {
  const ApiRequest request = Messages(R"({"messages": [{"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "1", "content": [
        {"type": "text", "text": "page 1"},
        {"type": "image", "source": {"type": "base64", "data": "aGk="}}]}]}]})");
  CHECK(request.chat.messages(0).content() == "page 1\n[image: this model reads only text]");
}

TEST_CASE("the choice of tools") {
  const auto mode = [](const std::string& choice) {
    return Messages(R"({"messages": [{"role": "user", "content": "x"}],
                        "tools": [{"name": "f", "input_schema": {}}], "tool_choice": )" +
                    choice + "}")
        .chat.tool_choice();
  };
  CHECK(mode(R"({"type": "none"})").mode() == v1::ToolChoice::NONE);
  CHECK(mode(R"({"type": "any"})").mode() == v1::ToolChoice::REQUIRED);
  CHECK(mode(R"({"type": "tool", "name": "f"})").mode() == v1::ToolChoice::NAMED);
  CHECK(mode(R"({"type": "tool", "name": "f"})").name() == "f");
}

TEST_CASE("system messages may come later, and thinking sets the template's switch") {
  CheckSame(R"({"thinking": {"type": "enabled", "budget_tokens": 1024},
                "output_config": {"effort": "low"},
                "messages": [{"role": "user", "content": "Hi"},
                             {"role": "system", "content": [{"type": "text", "text": "News."}]}]})",
            R"({"chat_template_kwargs": {"enable_thinking": true, "thinking": true,
                                         "reasoning_effort": "low"},
                "messages": [{"role": "user", "content": "Hi"},
                             {"role": "system", "content": "News."}]})");
  CHECK(Messages(R"({"thinking": {"type": "disabled"},
                     "messages": [{"role": "user", "content": "x"}]})")
            .chat.chat_template_kwargs() == R"({"enable_thinking":false,"thinking":false})");
}

TEST_CASE("lines of the system prompt that change from call to call are left out") {
  const std::string hi = R"("messages": [{"role": "user", "content": "Hi"}]})";
  const std::string chat =
      R"({"messages": [{"role": "system", "content": "Be brief.\nAlways."},
                       {"role": "user", "content": "Hi"}]})";
  CheckSame(R"({"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                           {"type": "text", "text": "Be brief.",
                            "cache_control": {"type": "ephemeral"}},
                           {"type": "text", "text": "Always."}], )" +
                hi,
            chat);
  CheckSame(R"({"system": "x-anthropic-billing-header: cch=2;\nBe brief.\nAlways.", )" + hi, chat);
  CheckSame(R"({"system": "x-anthropic-billing-header: cch=2;", )" + hi,
            R"({"messages": [{"role": "user", "content": "Hi"}]})");
}

TEST_CASE("a last message of the assistant is continued") {
  CheckSame(R"({"messages": [{"role": "user", "content": "Hi"},
                             {"role": "assistant", "content": "I am"}]})",
            R"({"messages": [{"role": "user", "content": "Hi"},
                             {"role": "assistant", "content": "I am"}],
                "continue_final_message": true})");
}

TEST_CASE("a form of the answer is that of response_format") {
  const std::string format = R"({"type": "json_schema", "schema": {"type": "object"}})";
  for (const std::string& field :
       {R"("output_config": {"format": )" + format + "}", R"("output_format": )" + format}) {
    const ApiRequest request =
        Messages(R"({"messages": [{"role": "user", "content": "x"}], )" + field + "}");
    CHECK(request.sampling().grammar().json_schema() == R"({"type":"object"})");
  }
}

TEST_CASE("foreign tools and hints are left out, unless the choice demands them") {
  const std::string tools = R"("tools": [{"type": "web_search_20250305", "name": "web_search"},
                                         {"name": "f", "input_schema": {"type": "x"}}])";
  const ApiRequest request =
      Messages(R"({"messages": [{"role": "user", "content": "x"}], "context_management": {"a": 1},
                   "mcp_servers": [], "service_tier": "auto", )" +
               tools + "}");
  CHECK(request.chat.tools() == R"([{"type":"function","function":{"name":"f",)"
                                R"("parameters":{"type":"x"}}}])");
  CHECK(MessagesProblem(tools + R"(, "tool_choice": {"type": "tool", "name": "web_search"})") ==
        "tool_choice: demands the tool 'web_search', which this server does not offer");
  CHECK(MessagesProblem(R"("tools": [{"type": "bash_20250124", "name": "bash"}],
                           "tool_choice": {"type": "any"})") ==
        "tool_choice: demands the tool 'bash', which this server does not offer");
  // The router names the place in its own list.
  CHECK(InClientTerms(request, 0, absl::InvalidArgumentError("tools[0].function.name: is bad"))
            .message() == "tools[1].name: is bad");
  CHECK(InClientTerms(request, 0, absl::InvalidArgumentError("sampling.stop[2]: is empty"))
            .message() == "stop_sequences[2]: is empty");
}

TEST_CASE("a message request's problems name the field") {
  CHECK(MessagesProblem(R"("max_tokens": "9")") == "max_tokens: must be an integer, not a string");
  CHECK(MessagesProblem(R"("n": 2)") == "n: must be 1: this API has one answer");
  CHECK(MessagesProblem(R"("tools": [{"name": "f"}])") == "tools[0].input_schema: is missing");
  CHECK(MessagesProblem(R"("tool_choice": {"type": "all"})").starts_with("tool_choice.type: "));
  CHECK(MessagesProblem(R"("thinking": {"type": "on"})").starts_with("thinking.type: "));
  CHECK(MessagesProblem(R"("stop_sequences": [1])") ==
        "stop_sequences[0]: must be a string, not a number");
  CHECK(MessagesProblem(R"("system": 5)") ==
        "system: must be a string or an array of blocks, not a number");
  CHECK(MessagesProblem(R"("system": [{"type": "image"}])").starts_with("system[0].type: 'image'"));
  CHECK(ContentProblem("user", R"({"type": "text", "text": "x"}, {"type": "image"})") ==
        "messages[0].content[1].type: 'image' is not supported: this server accepts only text");
  CHECK(ContentProblem("user", R"({"type": "tool_result", "tool_use_id": "1",
                                   "content": [{"type": "search_result"}]})") ==
        "messages[0].content[0].content[0].type: 'search_result' is not supported: this server "
        "accepts only text");
  CHECK(ContentProblem("assistant", R"({"type": "tool_use", "id": "1"})") ==
        "messages[0].content[0].name: is missing");
  CHECK(ContentProblem("critic", "").starts_with("messages[0].role: "));
  CHECK(ParseMessagesRequest("{}").status().message() == "messages: is missing");
  CHECK(ParseMessagesRequest(R"({"messages": []})").status().message() == "messages: is empty");
}

}  // namespace
}  // namespace stagecoach::router::http
