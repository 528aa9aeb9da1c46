// Names, types and combinations of request fields.
#include <fmt/format.h>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/testing/request_problems.h"

namespace stagecoach::router::http {
namespace {

TEST_CASE("for a wrong type, the error names the field") {
  const char* kNumbers[] = {"temperature",
                            "top_p",
                            "min_p",
                            "presence_penalty",
                            "frequency_penalty",
                            "repetition_penalty",
                            "n",
                            "max_tokens",
                            "min_tokens",
                            "top_k",
                            "seed",
                            "priority",
                            "prompt_logprobs",
                            "max_completion_tokens",
                            "top_logprobs"};
  for (const char* name : kNumbers) {
    CHECK(ChatProblem(fmt::format(R"("{}": "1")", name)).starts_with(fmt::format("{}: ", name)));
    CHECK(ChatProblem(fmt::format(R"("{}": [1])", name)).starts_with(fmt::format("{}: ", name)));
  }
  for (const char* name : {"n", "max_tokens", "min_tokens", "top_k", "seed", "priority"}) {
    CHECK(ChatProblem(fmt::format(R"("{}": 1.5)", name)).starts_with(fmt::format("{}: ", name)));
    CHECK(ChatProblem(fmt::format(R"("{}": 1e99)", name)).starts_with(fmt::format("{}: ", name)));
  }
  for (const char* name : {"stream", "logprobs", "ignore_eos", "continue_final_message",
                           "add_generation_prompt", "return_token_ids"}) {
    CHECK(ChatProblem(fmt::format(R"("{}": "true")", name)).starts_with(fmt::format("{}: ", name)));
  }
  CHECK(ChatProblem(R"("n": -1)").starts_with("n: -1 is not"));
  CHECK(ChatProblem(R"("stop": 5)").starts_with("stop: "));
  CHECK(ChatProblem(R"("stop": ["a", 5])").starts_with("stop[1]: "));
  CHECK(ChatProblem(R"("stop_token_ids": ["a"])").starts_with("stop_token_ids[0]: "));
  CHECK(ChatProblem(R"("logit_bias": {"a": 1})").starts_with("logit_bias: 'a'"));
  CHECK(ChatProblem(R"("logit_bias": {"1": "x"})").starts_with("logit_bias[1]: "));
  CHECK(ChatProblem(R"("logit_bias": [1])").starts_with("logit_bias: "));
  CHECK(ChatProblem(R"("model": 5)").starts_with("model: "));
  CHECK(ChatProblem(R"("cache_salt": 5)").starts_with("cache_salt: "));
  CHECK(ChatProblem(R"("stream": true, "stream_options": {"include_usage": 1})")
            .starts_with("stream_options.include_usage: "));
  CHECK(ChatProblem(R"("chat_template_kwargs": "x")").starts_with("chat_template_kwargs: "));
}

TEST_CASE("for conflicting fields, the error names one of them") {
  CHECK(ChatProblem(R"("top_logprobs": 3)").starts_with("top_logprobs: needs logprobs"));
  CHECK(
      ChatProblem(R"("stream_options": {"include_usage": true})").starts_with("stream_options: "));
  CHECK(ChatProblem(R"("stream": true, "prompt_logprobs": 1)").starts_with("prompt_logprobs: "));
  CHECK(ChatProblem(R"("best_of": 3)").starts_with("best_of: "));
}

TEST_CASE("unsupported fields of other servers are refused by name") {
  for (const char* field : {R"("guided_whitespace_pattern": " ?")",
                            R"("use_beam_search": true)",
                            R"("allowed_token_ids": [1])",
                            R"("bad_words": ["x"])",
                            R"("include_stop_str_in_output": true)",
                            R"("ebnf": "root ::= x")",
                            R"("grammar": "root ::= x")",
                            R"("mirostat": 2)",
                            R"("typical_p": 0.9)",
                            R"("dry_multiplier": 0.8)",
                            R"("xtc_probability": 0.5)",
                            R"("no_repeat_ngram_size": 3)",
                            R"("repeat_penalty": 1.1)",
                            R"("length_penalty": 2)",
                            R"("num_beams": 4)",
                            R"("lora_request": {"name": "a"})",
                            R"("lora_path": "a")",
                            R"("do_sample": false)",
                            R"("stop_regex": "x")",
                            R"("truncate_prompt_tokens": 5)",
                            R"("watermark": true)",
                            R"("options": {"num_predict": 1})",
                            R"("logits_processors": ["x"])"}) {
    const std::string name(field + 1, std::string(field).find('"', 1) - 1);
    const std::string wanted = name + ": is not offered by this server";
    CHECK(ChatProblem(field).starts_with(wanted));
    CHECK(CompletionProblem(std::string(R"("prompt": "x", )") + field).starts_with(wanted));
  }
  for (const char* field : {R"("functions": [{"name": "f"}])", R"("chat_template": "{{ x }}")",
                            R"("thinking": false)", R"("thinking": {"type": "disabled"})",
                            R"("think": true)", R"("reasoning": {"effort": "low"})",
                            R"("documents": [{}])", R"("prompt": "x")", R"("system": "x")"}) {
    const std::string name(field + 1, std::string(field).find('"', 1) - 1);
    CHECK(ChatProblem(field).starts_with(name + ": is not offered by this server"));
  }
  for (const char* field : {R"("tools": [{}])", R"("messages": [{}])", R"("enable_thinking": true)",
                            R"("top_logprobs": 2)"}) {
    const std::string name(field + 1, std::string(field).find('"', 1) - 1);
    CHECK(CompletionProblem(std::string(R"("prompt": "x", )") + field)
              .starts_with(name + ": is not offered by this server; "));
  }
  CHECK(ChatProblem(R"("repeat_penalty": 1.1)") ==
        "repeat_penalty: is not offered by this server; use repetition_penalty");
}

TEST_CASE("a chat that asks for more than text is refused") {
  const std::string problem =
      R"(modalities: "audio" is not supported: this server produces only text)";
  CHECK(ChatProblem(R"("modalities": ["audio"])") == problem);
  CHECK(ChatProblem(R"("modalities": ["text", "audio"])") == problem);
  CHECK(ChatProblem(R"("modalities": "audio")").starts_with("modalities: "));
  for (const char* accepted : {R"(["text"])", "[]", "null"}) {
    CHECK(
        ParseChatRequest(
            fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], "modalities": {}}})",
                        accepted))
            .ok());
  }
}

TEST_CASE("unsupported nested fields are refused by name") {
  CHECK(ChatProblem(R"("stream": true, "stream_options": {"include_usages": true})") ==
        "stream_options.include_usages: is not offered by this server");
  CHECK(ChatProblem(R"("response_format": {"type": "json_object", "pattern": "x"})") ==
        "response_format.pattern: is not offered by this server");
  CHECK(ChatProblem(R"("response_format": {"type": "json_object", "json_schema": {}})")
            .starts_with("response_format.json_schema: "));
  CHECK(
      ChatProblem(R"("structured_outputs": {"ebnf": "x"})").starts_with("structured_outputs.ebnf"));
  for (const char* field : {"images", "audio", "prefix", "partial", "function_call"}) {
    const auto status =
        ParseChatRequest(
            fmt::format(R"({{"messages": [{{"role": "assistant", "content": "x", "{}": [1]}}]}})",
                        field))
            .status();
    CHECK(std::string(status.message()).starts_with(fmt::format("messages[0].{}: is not", field)));
  }
}

TEST_CASE("other servers' names for the same field are accepted") {
  for (const char* name : {"max_tokens", "max_completion_tokens", "max_new_tokens",
                           "max_output_tokens", "n_predict", "num_predict"}) {
    const auto request = ParseCompletionRequest(fmt::format(R"({{"prompt": "x", "{}": 7}})", name));
    REQUIRE(request.ok());
    CHECK(request->sampling().max_tokens() == 7);
    CHECK(request->max_tokens_name == std::string(name));
    for (const char* none : {"-3", "1.5", "99999999999"}) {
      CHECK(ChatProblem(fmt::format(R"("{}": {})", name, none)) ==
            fmt::format("{}: {} is not an integer from 1 to what the prompt leaves of the model's "
                        "context",
                        name, none));
    }
  }
  const auto unlimited = ParseCompletionRequest(R"({"prompt": "x", "n_predict": -1})");
  REQUIRE(unlimited.ok());
  CHECK_FALSE(unlimited->sampling().has_max_tokens());

  const auto kwargs = [](const std::string& fields) {
    const auto request =
        ParseChatRequest(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}");
    INFO(std::string(request.status().message()));
    REQUIRE(request.ok());
    return request->chat.chat_template_kwargs();
  };
  CHECK(kwargs(R"("enable_thinking": false)") == R"({"enable_thinking":false})");
  CHECK(kwargs(R"("chat_template_kwargs": {"a": 1, "enable_thinking": true},
                  "enable_thinking": true, "reasoning_effort": "low")") ==
        R"({"a":1,"enable_thinking":true,"reasoning_effort":"low"})");
  CHECK(kwargs(R"("enable_thinking": null)").empty());
  CHECK(ChatProblem(R"("enable_thinking": "yes")").starts_with("enable_thinking: "));
  CHECK(
      ChatProblem(R"("enable_thinking": true, "chat_template_kwargs": {"enable_thinking": false})")
          .starts_with("enable_thinking: has another value"));
  const auto any =
      ParseChatRequest(R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "any"})");
  CHECK(any->chat.tool_choice().mode() == v1::ToolChoice::REQUIRED);
}

}  // namespace
}  // namespace stagecoach::router::http
