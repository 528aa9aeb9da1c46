#include "cli/batch_line.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

std::string Parsed(std::string_view line) {
  const absl::StatusOr<BatchLine> parsed = ParseBatchLine(line);
  REQUIRE(parsed.ok());
  return std::visit([](const auto& message) { return message.ShortDebugString(); },
                    parsed->request);
}

std::string Problem(std::string_view line) {
  const absl::Status status = ParseBatchLine(line).status();
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("A prompt can be text, token ids or messages") {
  CHECK(Parsed(R"({"prompt": "Hi"})") == R"(text: "Hi")");
  CHECK(Parsed(R"({"prompt_ids": [1, 2]})") == "tokens { ids: 1 ids: 2 }");
  CHECK(Parsed(R"({"messages": [{"role": "user", "content": "Hi"}]})") ==
        R"(messages { role: "user" content: "Hi" } separate_reasoning: false)");
}

TEST_CASE("Request fields and sampling fields are on the same level") {
  CHECK(
      Parsed(R"({"prompt": "", "max_tokens": 3, "temperature": 0, "stop": ["a", "b"],
                   "ignore_eos": true, "echo": true, "priority": -1, "seed": null})") ==
      R"(text: "" sampling { temperature: 0 max_tokens: 3 stop: "a" stop: "b" ignore_eos: true } )"
      "echo: true priority: -1");
  CHECK(Parsed(R"({"prompt": "", "logit_bias": {"12": -3.5}})") ==
        R"(text: "" sampling { logit_bias { key: 12 value: -3.5 } })");
}

TEST_CASE("The error names the wrong field") {
  CHECK(Problem("{").starts_with("not a JSON object"));
  CHECK(Problem("[]") == "not a JSON object");
  CHECK(Problem("{}") == "exactly one of prompt, prompt_ids and messages is needed");
  CHECK(Problem(R"({"prompt": "a", "prompt_ids": [1]})") ==
        "exactly one of prompt, prompt_ids and messages is needed");
  CHECK(Problem(R"({"prompt": 3})") == "prompt: expected a string");
  CHECK(Problem(R"({"prompt_ids": [1.5]})") == "prompt_ids: expected a list of token ids");
  CHECK(Problem(R"({"prompt": "a", "maxtokens": 3})") == "unknown field maxtokens");
  CHECK(Problem(R"({"prompt_ids": [1], "text": "a"})") == "unknown field text");
  CHECK(Problem(R"({"prompt": "a", "max_tokens": -3})") ==
        "max_tokens: expected a whole number, got -3");
  CHECK(Problem(R"({"prompt": "a", "max_tokens": "3"})") ==
        "max_tokens: expected a whole number, got \"3\"");
  CHECK(Problem(R"({"prompt": "a", "stop": "x"})") == "stop: expected a list, got \"x\"");
  CHECK(Problem(R"({"prompt": "a", "ignore_eos": 1})") ==
        "ignore_eos: expected true or false, got 1");
  CHECK(Problem(R"({"prompt": "a", "logit_bias": {"x": 1}})").starts_with("logit_bias: "));
  CHECK(Problem(R"({"messages": []})").starts_with("messages: "));
  CHECK(Problem(R"({"messages": [{"rôle": "user"}]})") == "messages: unknown field rôle");
}

}  // namespace
}  // namespace stagecoach::cli
