#include "cli/openai_batch.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

namespace json = boost::json;

constexpr char kChat[] = R"({"custom_id": "a-1", "method": "POST", "url": "/v1/chat/completions",
  "body": {"model": "m", "max_completion_tokens": 5, "stop": "x", "user": "u", "temperature": null,
           "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
           "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}})";

TEST_CASE("a line in OpenAI's format becomes the request in its body") {
  const auto line = ParseBatchLine(kChat);
  REQUIRE(line.ok());
  CHECK(line->name.is_openai);
  CHECK(line->name.name == "a-1");
  const auto& request = std::get<v1::ChatRequest>(line->request);
  CHECK(request.model() == "m");
  CHECK(request.messages(0).content() == "Hi");
  CHECK(request.sampling().max_tokens() == 5);
  CHECK(request.sampling().stop(0) == "x");
  CHECK(request.sampling().grammar().json_schema() == R"({"type":"object"})");

  const auto text = ParseBatchLine(
      R"({"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": [1, 2]}})");
  REQUIRE(text.ok());
  CHECK(std::get<v1::GenerateRequest>(text->request).tokens().ids_size() == 2);
}

TEST_CASE("the error names what is wrong in a line in OpenAI's format") {
  const auto problem = [](const std::string& line) {
    return std::string(ParseBatchLine(line).status().message());
  };
  CHECK(problem(R"({"custom_id": "a", "url": "/v1/embeddings", "body": {}})") ==
        "url: only /v1/chat/completions and /v1/completions are supported");
  CHECK(problem(R"({"url": "/v1/completions", "body": {"prompt": "a", "zz": 1}})") ==
        "body: unknown field zz");
  CHECK(problem(R"({"url": "/v1/completions", "body": 3})") == "body: expected an object");
  CHECK(problem(R"({"url": "/v1/chat/completions", "body": {}})") == "body: needs messages");
  CHECK(problem(R"({"prompt": "a", "response_format": {"type": "yaml"}})")
            .starts_with("response_format: "));
}

TEST_CASE("a result has OpenAI's format") {
  const auto line = ParseBatchLine(kChat);
  REQUIRE(line.ok());
  Completion completion;
  v1::GenerateResponse piece;
  piece.set_request_id("r");
  piece.set_text("{}");
  piece.add_token_ids(7);
  piece.set_finish_reason(v1::FINISH_REASON_STOP);
  piece.set_stop_reason("x");
  piece.mutable_usage()->set_prompt_tokens(3);
  piece.mutable_usage()->set_completion_tokens(1);
  completion.Add(piece);
  const json::object result = OpenAiResult(4, line->name, line->request, completion, "served");
  CHECK(result.at("custom_id") == "a-1");
  CHECK(result.at("error").is_null());
  const json::object& response = result.at("response").as_object();
  CHECK(response.at("status_code") == 200);
  const json::object& body = response.at("body").as_object();
  CHECK(body.at("object") == "chat.completion");
  CHECK(body.at("model") == "served");
  const json::object& choice = body.at("choices").at(0).as_object();
  CHECK(choice.at("message").at("content") == "{}");
  CHECK(choice.at("finish_reason") == "stop");
  CHECK(choice.at("stop_reason") == "x");
  CHECK(body.at("usage").at("total_tokens") == 4);

  const json::object failed = OpenAiError(4, line->name, absl::InvalidArgumentError("top_p: is 3"));
  CHECK(failed.at("response").at("status_code") == 400);
  CHECK(failed.at("response").at("body").at("error").at("message") == "top_p: is 3");
}

}  // namespace
}  // namespace stagecoach::cli
