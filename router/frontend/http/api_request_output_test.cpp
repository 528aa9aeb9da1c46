// Fields that decide what an answer looks like: structured output, JSON events, tools.
#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/testing/request_problems.h"

namespace stagecoach::router::http {
namespace {

v1::Grammar GrammarOf(const std::string& fields, std::string* name = nullptr) {
  const auto request = ParseCompletionRequest(R"({"prompt": "x", )" + fields + "}");
  INFO(fields << " " << std::string(request.status().message()));
  REQUIRE(request.ok());
  if (name != nullptr) *name = request->grammar_field;
  return request->sampling().grammar();
}

TEST_CASE("structured output is accepted under all its names") {
  std::string name;
  CHECK(GrammarOf(R"("response_format": {"type": "json_object"})", &name).json_object());
  CHECK(name == "response_format");
  CHECK(GrammarOf(R"("response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "strict": true, "schema": {"b": 1, "a": {}}}})",
                  &name)
            .json_schema() == R"({"b":1,"a":{}})");
  CHECK(name == "response_format.json_schema.schema");
  CHECK(GrammarOf(R"("guided_json": {"type": "null"})").json_schema() == R"({"type":"null"})");
  CHECK(GrammarOf(R"("guided_json": "{\"type\": 1}")").json_schema() == R"({"type": 1})");
  CHECK(GrammarOf(R"("guided_regex": "a+")").regex() == "a+");
  CHECK(GrammarOf(R"("guided_grammar": "start: \"a\"")").lark() == "start: \"a\"");
  CHECK(GrammarOf(R"("guided_choice": ["a", "b"])", &name).choice().texts(1) == "b");
  CHECK(name == "guided_choice");
  CHECK(GrammarOf(R"("structured_outputs": {"regex": "a"})", &name).regex() == "a");
  CHECK(name == "structured_outputs.regex");
  CHECK(GrammarOf(R"("structured_outputs": {"json_object": true})").json_object());
  // Other servers' names for the same fields.
  CHECK(GrammarOf(R"("regex": "a+")", &name).regex() == "a+");
  CHECK(name == "regex");
  CHECK(GrammarOf(R"("json_schema": {"type": "null"})").json_schema() == R"({"type":"null"})");
  CHECK(GrammarOf(R"("format": "json")").json_object());
  CHECK(GrammarOf(R"("format": {"type": "null"})", &name).json_schema() == R"({"type":"null"})");
  CHECK(name == "format");
  CHECK(
      GrammarOf(R"("grammar": {"type": "json", "value": {"type": "null"}})", &name).json_schema() ==
      R"({"type":"null"})");
  CHECK(name == "grammar.value");
  CHECK(GrammarOf(R"("grammar": {"type": "regex", "value": "a"})").regex() == "a");
  CHECK(GrammarOf(R"("grammar": "%llguidance {}\nstart: \"a\"")").has_lark());
  CHECK(
      GrammarOf(R"("response_format": {"type": "json_object", "schema": {"type": "null"}})", &name)
          .json_schema() == R"({"type":"null"})");
  CHECK(name == "response_format.schema");
  CHECK(GrammarOf(R"("response_format": {"type": "json_schema", "name": "n", "strict": true,
            "schema": {"type": "null"}})")
            .has_json_schema());
  CHECK(GrammarOf(R"("response_format": {"type": "json", "value": {"type": "null"}})")
            .has_json_schema());
  const v1::Grammar spaced = GrammarOf(
      R"("structured_outputs": {"json": true, "disable_any_whitespace": false, "regex": null})");
  CHECK(spaced.any_whitespace());
  CHECK(spaced.json_schema() == "true");
  for (const char* none : {R"("response_format": {"type": "text"})", R"("guided_json": null)",
                           R"("structured_outputs": {})"}) {
    CHECK(GrammarOf(none, &name).ByteSizeLong() == 0);
    CHECK(name.empty());
  }
}

TEST_CASE("for invalid structured output, the error names the field") {
  CHECK(ChatProblem(R"("response_format": "json")").starts_with("response_format: must be"));
  CHECK(ChatProblem(R"("response_format": {})") == "response_format.type: is missing");
  CHECK(ChatProblem(R"("response_format": {"type": "xml"})")
            .starts_with("response_format.type: 'xml' is not"));
  CHECK(ChatProblem(R"("response_format": {"type": "json_schema"})") ==
        "response_format.json_schema: is missing");
  CHECK(
      ChatProblem(R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})") ==
      "response_format.json_schema.schema: is missing");
  CHECK(ChatProblem(R"("guided_json": 5)").starts_with("guided_json: must be a JSON Schema"));
  CHECK(ChatProblem(R"("guided_regex": {})").starts_with("guided_regex: must be a string"));
  CHECK(ChatProblem(R"("guided_choice": "a")").starts_with("guided_choice: must be an array"));
  CHECK(ChatProblem(R"("guided_choice": [1])") == "guided_choice[0]: must be a string");
  CHECK(ChatProblem(R"("guided_json": {}, "guided_regex": "a")") ==
        "guided_regex: excludes guided_json");
  CHECK(ChatProblem(R"("response_format": {"type": "json_object"},
                       "structured_outputs": {"json": {}})") ==
        "structured_outputs.json: excludes response_format");
  CHECK(ChatProblem(R"("structured_outputs": {"structural_tag": "x"})")
            .starts_with("structured_outputs.structural_tag: "));
  CHECK(ChatProblem(R"("structured_outputs": {"disable_any_whitespace": false})") ==
        "structured_outputs: must contain one of json, regex, choice, grammar and json_object");
}

TEST_CASE("JSON events are for all paths or for some") {
  const auto events = [](const std::string& value) {
    const auto request = ParseCompletionRequest(
        R"({"prompt": "x", "stream": true, "stream_options": {"json_events": )" + value + "}}");
    REQUIRE(request.ok());
    return request->prompts[0];
  };
  CHECK(events("true").has_json_events());
  CHECK(events("true").json_events().paths().empty());
  CHECK(events(R"(["/a", "/b/*"])").json_events().paths(1) == "/b/*");
  CHECK_FALSE(events("false").has_json_events());
  CHECK_FALSE(events("null").has_json_events());
  const auto problem = [](const std::string& value) {
    return ChatProblem(R"("stream": true, "stream_options": {"json_events": )" + value + "}");
  };
  CHECK(problem("[]").starts_with("stream_options.json_events: must be true or"));
  CHECK(problem("\"/a\"").starts_with("stream_options.json_events: must be true or"));
  CHECK(problem("[\"/a\", 1]").starts_with("stream_options.json_events[1]: must be a string"));
}

TEST_CASE("tools, tool_choice and tool messages are parsed") {
  const auto request = ParseChatRequest(R"({"messages": [
      {"role": "user", "content": "x", "name": "Ann"},
      {"role": "assistant", "content": null, "reasoning_content": "Hm", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
        {"id": "2", "function": {"name": "g", "arguments": {"b": 2}}}]},
      {"role": "tool", "tool_call_id": "1", "content": "sunny"}],
    "tools": [{"type": "function", "function": {"name": "f"}}], "parallel_tool_calls": false,
    "separate_reasoning": false,
    "tool_choice": {"type": "function", "function": {"name": "f"}}})");
  REQUIRE(request.ok());
  const v1::ChatRequest& chat = request->chat;
  CHECK(chat.messages(0).name() == "Ann");
  const v1::ChatMessage& calling = chat.messages(1);
  CHECK_FALSE(calling.has_content());
  CHECK(calling.reasoning() == "Hm");
  REQUIRE(calling.tool_calls_size() == 2);
  CHECK(calling.tool_calls(0).id() == "1");
  CHECK(calling.tool_calls(0).name() == "f");
  CHECK(calling.tool_calls(0).arguments() == R"({"a": 1})");
  CHECK(calling.tool_calls(1).arguments() == R"({"b":2})");
  CHECK(chat.messages(2).role() == "tool");
  CHECK(chat.messages(2).tool_call_id() == "1");
  CHECK(chat.tools() == R"([{"type":"function","function":{"name":"f"}}])");
  CHECK(chat.tool_choice().mode() == v1::ToolChoice::NAMED);
  CHECK(chat.tool_choice().name() == "f");
  CHECK(chat.has_parallel_tool_calls());
  CHECK_FALSE(chat.parallel_tool_calls());
  CHECK(chat.has_separate_reasoning());

  const auto mode = [](const std::string& choice) {
    return ParseChatRequest(R"({"messages": [], "tool_choice": )" + choice + "}")
        ->chat.tool_choice()
        .mode();
  };
  CHECK(mode("null") == v1::ToolChoice::AUTO);
  CHECK(mode("\"auto\"") == v1::ToolChoice::AUTO);
  CHECK(mode("\"none\"") == v1::ToolChoice::NONE);
  CHECK(mode("\"required\"") == v1::ToolChoice::REQUIRED);
  CHECK(ChatProblem(R"("tools": {})").starts_with("tools: must be an array"));
  CHECK(ChatProblem(R"("tool_choice": "maybe")").starts_with("tool_choice: must be"));
  CHECK(ChatProblem(R"("tool_choice": 1)").starts_with("tool_choice: must be an object"));
  CHECK(ChatProblem(R"("tool_choice": {"type": "x"})").starts_with("tool_choice.type: "));
  CHECK(
      ChatProblem(R"("tool_choice": {"type": "function"})").starts_with("tool_choice.function: "));
  CHECK(ChatProblem(R"("tool_choice": {"type": "function", "function": {}})")
            .starts_with("tool_choice.function.name: "));
  const auto problem = [](const std::string& message) {
    return std::string(ParseChatRequest(R"({"messages": [)" + message + "]}").status().message());
  };
  CHECK(problem(R"({"role": "function", "content": "x"})").starts_with("messages[0].role: "));
  CHECK(problem(R"({"role": "assistant", "function_call": {"name": "f"}})")
            .starts_with("messages[0].function_call: "));
  CHECK(problem(R"({"role": "assistant", "tool_calls": [1]})") ==
        "messages[0].tool_calls[0]: must be an object");
  CHECK(problem(R"({"role": "assistant", "tool_calls": [{"type": "x", "function": {}}]})")
            .starts_with("messages[0].tool_calls[0].type: "));
  CHECK(problem(R"({"role": "assistant", "tool_calls": [{"function": {"arguments": 1}}]})")
            .starts_with("messages[0].tool_calls[0].function.arguments: must be a string"));
}

}  // namespace
}  // namespace stagecoach::router::http
