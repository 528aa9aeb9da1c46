#include "router/frontend/http/responses/responses_request.h"

#include <boost/json.hpp>
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/text/request_builder.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router::http {
namespace {

ApiRequest Responses(const std::string& body) {
  auto request = ParseResponsesRequest(body);
  INFO(body);
  INFO(request.status().message());
  REQUIRE(request.ok());
  return *std::move(request);
}

std::string ResponsesProblem(const std::string& fields) {
  const auto request = ParseResponsesRequest("{" + fields + "}");
  INFO(fields);
  REQUIRE_FALSE(request.ok());
  CHECK(absl::IsInvalidArgument(request.status()));
  return std::string(request.status().message());
}

// Requires that both requests reach the model as the same tokens, with the same tools and sampling.
void CheckSameAsChat(const std::string& response, const std::string& chat_completion) {
  v1::ChatRequest ours = Responses(response).chat;
  const auto theirs = ParseChatRequest(chat_completion);
  INFO(theirs.status().message());
  REQUIRE(theirs.ok());
  CHECK(ours.sampling().clamp_max_tokens());
  ours.mutable_sampling()->clear_clamp_max_tokens();
  CHECK(ours.DebugString() == theirs->chat.DebugString());
  if (!ours.tools().empty()) return;  // the test's model has no tools
  const ServedModel model = TestModel();
  const auto a = BuildGeneration(model, ours, 0);
  const auto b = BuildGeneration(model, theirs->chat, 0);
  INFO(a.status().message());
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(*a->prompt == *b->prompt);
}

TEST_CASE("a response request becomes the request of the same chat completion") {
  CheckSameAsChat(R"({"input": "Hi", "instructions": "Be brief.", "max_output_tokens": 9,
                      "temperature": 0.5, "top_p": 0.5, "metadata": {"a": "b"},
                      "reasoning": {"effort": "low", "summary": "auto"}})",
                  R"({"max_tokens": 9, "temperature": 0.5, "top_p": 0.5, "reasoning_effort": "low",
                      "messages": [{"role": "system", "content": "Be brief."},
                                   {"role": "user", "content": "Hi"}]})");
  CheckSameAsChat(
      R"({"input": [{"role": "developer", "content": "D"},
                    {"type": "message", "role": "user",
                     "content": [{"type": "input_text", "text": "1"},
                                 {"type": "input_text", "text": "2"}]},
                    {"type": "message", "role": "assistant", "id": "m", "status": "completed",
                     "content": [{"type": "output_text", "text": "So", "annotations": []}]},
                    {"role": "assistant", "content": "Then"}, {"role": "user", "content": "X"}],
          "reasoning": {"effort": "none"}})",
      R"({"messages": [{"role": "system", "content": "D"}, {"role": "user", "content": "1\n2"},
                       {"role": "assistant", "content": "So"},
                       {"role": "assistant", "content": "Then"}, {"role": "user", "content": "X"}],
          "chat_template_kwargs": {"enable_thinking": false, "thinking": false}})");
}

TEST_CASE("reasoning, text and calls that follow each other are one message") {
  CheckSameAsChat(
      R"({"tools": [{"type": "function", "name": "f", "description": "d", "strict": false,
                     "parameters": {"type": "object"}}],
          "tool_choice": "auto", "parallel_tool_calls": false,
          "input": [{"role": "user", "content": "Hi"},
                    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "?",
                     "content": [{"type": "reasoning_text", "text": "Hm."}]},
                    {"role": "assistant", "content": "Wait."},
                    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"a\":"},
                    {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
                    {"type": "web_search_call", "id": "w"},
                    {"type": "function_call_output", "call_id": "1", "output": "one"},
                    {"type": "function_call_output", "call_id": "2",
                     "output": [{"type": "input_text", "text": "two"}]},
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Ah."}]},
                    {"type": "function_call", "call_id": "3", "name": "f", "arguments": "{}"}]})",
      R"({"tools": [{"type": "function", "function": {
                       "name": "f", "description": "d", "parameters": {"type": "object"},
                       "strict": false}}],
          "parallel_tool_calls": false,
          "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Wait.", "reasoning_content": "Hm.", "tool_calls": [
              {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":"}},
              {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "assistant", "reasoning_content": "Ah.", "tool_calls": [
              {"id": "3", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]})");
}

TEST_CASE("functions of a namespace have its name in front") {
  const std::string request =
      R"({"tools": [{"type": "namespace", "name": "mcp__coach", "description": "d", "tools": [
                       {"type": "function", "name": "departures", "strict": false,
                        "parameters": {"type": "object"}},
                       {"type": "custom", "name": "other"}]}],
          "tool_choice": {"type": "function", "namespace": "mcp__coach", "name": "departures"},
          "input": [{"role": "user", "content": "Hi"},
                    {"type": "function_call", "call_id": "1", "namespace": "mcp__coach",
                     "name": "departures", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "1", "output": "one"}]})";
  CheckSameAsChat(request,
                  R"({"tools": [{"type": "function", "function": {
                       "name": "mcp__coach__departures", "parameters": {"type": "object"},
                       "strict": false}}],
          "tool_choice": {"type": "function", "function": {"name": "mcp__coach__departures"}},
          "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "tool_calls": [
              {"id": "1", "type": "function",
               "function": {"name": "mcp__coach__departures", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "one"}]})");
  CHECK(Responses(request).responses.namespaces.at("mcp__coach__departures") == "mcp__coach");
  CHECK(ResponsesProblem(R"("input": "x", "tools": [
            {"type": "namespace", "name": "n", "tools": [{"type": "function"}]}])") ==
        "tools[0].tools[0].name: is missing");
}

TEST_CASE("a note takes the place of a picture in a function's output") {
  const ApiRequest request = Responses(R"({"input": [
      {"type": "function_call_output", "call_id": "1",
       "output": [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]}]})");
  CHECK(request.chat.messages(0).content() == "[input_image: this model reads only text]");
}

TEST_CASE("the choice of tools, the form of the answer and what it repeats") {
  const auto choice = [](const std::string& value) {
    return Responses(R"({"input": "x", "tools": [{"type": "function", "name": "f"}],
                         "tool_choice": )" +
                     value + "}")
        .chat.tool_choice();
  };
  CHECK(choice("\"none\"").mode() == v1::ToolChoice::NONE);
  CHECK(choice("\"required\"").mode() == v1::ToolChoice::REQUIRED);
  CHECK(choice(R"({"type": "function", "name": "f"})").mode() == v1::ToolChoice::NAMED);
  CHECK(choice(R"({"type": "allowed_tools", "mode": "required", "tools": []})").mode() ==
        v1::ToolChoice::REQUIRED);
  const ApiRequest request =
      Responses(R"({"input": "x", "store": false, "instructions": "i", "metadata": {"a": "b"},
                    "previous_response_id": "resp_1",
                    "text": {"format": {"type": "json_schema", "name": "n", "strict": true,
                                        "schema": {"type": "object"}}}})");
  CHECK(request.sampling().grammar().json_schema() == R"({"type":"object"})");
  CHECK(request.grammar_field == "text.format.schema");
  CHECK_FALSE(request.responses.store);
  CHECK(request.responses.has_instructions);
  CHECK(request.responses.previous_response_id == "resp_1");
  const auto echo = boost::json::parse("{" + request.responses.echo + "}");
  CHECK(echo.at("metadata").at("a") == "b");
  CHECK(echo.at("instructions") == "i");
  CHECK(echo.at("tools").as_array().empty());
  CHECK(echo.at("parallel_tool_calls") == true);
  const ApiRequest large =
      Responses(R"({"input": "x", "instructions": ")" + std::string(10'000, 'i') + "\"}");
  CHECK(large.responses.echo.find("iii") == std::string::npos);
}

TEST_CASE("a response request's problems name the field") {
  CHECK(ResponsesProblem("") == "input: is missing");
  CHECK(ResponsesProblem(R"("input": 5)") ==
        "input: must be a string or an array of items, not a number");
  CHECK(ResponsesProblem(R"("input": "x", "background": true)").starts_with("background: "));
  CHECK(ResponsesProblem(R"("input": "x", "conversation": "c")").starts_with("conversation: "));
  CHECK(ResponsesProblem(R"("input": "x", "prompt": {"id": "p"})").starts_with("prompt: "));
  CHECK(ResponsesProblem(R"("input": [{"role": "user", "content": [{"type": "input_image"}]}])") ==
        "input[0].content[0].type: 'input_image' is not supported: this server accepts only text");
  CHECK(ResponsesProblem(R"("input": [{"type": "item_reference", "id": "m"}])")
            .starts_with("input[0].type: "));
  CHECK(ResponsesProblem(R"("input": [{"type": "function_call", "call_id": "1"}])") ==
        "input[0].name: is missing");
  CHECK(ResponsesProblem(R"("input": "x", "tools": [{"type": "web_search"}],
                            "tool_choice": {"type": "web_search"})") ==
        "tool_choice: demands the tool 'web_search', which this server does not offer");
  CHECK(ResponsesProblem(R"("input": "x", "tools": [{"type": "custom", "name": "patch"}],
                            "tool_choice": "required")") ==
        "tool_choice: demands the tool 'patch', which this server does not offer");
}

}  // namespace
}  // namespace stagecoach::router::http
