#include "router/frontend/http/api_request.h"

#include <fmt/format.h>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

std::string CompletionProblem(const std::string& fields) {
  const auto request = ParseCompletionRequest("{" + fields + "}");
  INFO(fields);
  REQUIRE_FALSE(request.ok());
  CHECK(absl::IsInvalidArgument(request.status()));
  return std::string(request.status().message());
}

std::string ChatProblem(const std::string& fields) {
  const auto request =
      ParseChatRequest(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}");
  INFO(fields);
  REQUIRE_FALSE(request.ok());
  return std::string(request.status().message());
}

TEST_CASE("too large n is refused before memory for the choices is allocated") {
  for (const char* n : {"0", "129", "4294967295"}) {
    const std::string field = std::string(R"("n": )") + n;
    CHECK(CompletionProblem(R"("prompt": "x", )" + field).starts_with("n: "));
    CHECK(ChatProblem(field).starts_with("n: "));
  }
}

TEST_CASE("many prompts with a large common part are refused") {
  const auto body = [](int n_prompts, size_t n_common) {
    std::string prompts = R"("x")";
    for (int i = 1; i < n_prompts; ++i) prompts += R"(,"x")";
    return fmt::format(R"("prompt": [{}], "model": "{}")", prompts, std::string(n_common, 'm'));
  };
  CHECK(ParseCompletionRequest("{" + body(1, 1 << 20) + "}").ok());
  CHECK(ParseCompletionRequest("{" + body(1024, 4 << 10) + "}").ok());
  CHECK(CompletionProblem(body(1024, 1 << 20)).starts_with("prompt: "));
}

TEST_CASE("the fields of a completion are parsed") {
  const auto request = ParseCompletionRequest(R"({
    "model": "m", "prompt": "Once", "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": -1,
    "min_p": 0.125, "n": 2, "seed": -1, "stop": ["a", "b"], "stop_token_ids": [5, 6],
    "ignore_eos": true, "min_tokens": 3, "presence_penalty": 1, "frequency_penalty": -1,
    "repetition_penalty": 1.5, "logit_bias": {"5": -100, "6": 2.5}, "logprobs": 4, "priority": -2,
    "skip_special_tokens": false, "add_special_tokens": false, "stream": true,
    "stream_options": {"include_usage": true}, "user": "someone", "unknown": {"deep": [1]},
    "best_of": 2, "tools": [], "suffix": null, "use_beam_search": false, "mirostat": 0,
    "typical_p": 1.0, "no_repeat_ngram_size": 0, "lora_request": null, "do_sample": true})");
  REQUIRE(request.ok());
  CHECK_FALSE(request->is_chat);
  CHECK(request->stream);
  CHECK(request->include_usage);
  CHECK_FALSE(request->continuous_usage);
  CHECK(request->logprobs);
  CHECK_FALSE(request->echo);
  CHECK(request->n() == 2);
  REQUIRE(request->prompts.size() == 1);
  const v1::GenerateRequest& prompt = request->prompts[0];
  CHECK(prompt.text() == "Once");
  CHECK(prompt.model() == "m");
  CHECK(prompt.priority() == -2);
  CHECK(prompt.has_skip_special_tokens());
  CHECK_FALSE(prompt.skip_special_tokens());
  CHECK_FALSE(prompt.add_special_tokens());
  const v1::SamplingParams& sampling = prompt.sampling();
  CHECK(sampling.max_tokens() == 7);
  CHECK(sampling.temperature() == 0.5f);
  CHECK(sampling.top_p() == 0.25f);
  CHECK(sampling.top_k() == -1);
  CHECK(sampling.min_p() == 0.125f);
  CHECK(sampling.seed() == UINT64_MAX);
  CHECK(sampling.stop_size() == 2);
  CHECK(sampling.stop_token_ids(1) == 6);
  CHECK(sampling.ignore_eos());
  CHECK(sampling.min_tokens() == 3);
  CHECK(sampling.presence_penalty() == 1.0f);
  CHECK(sampling.frequency_penalty() == -1.0f);
  CHECK(sampling.repetition_penalty() == 1.5f);
  CHECK(sampling.logit_bias().at(6) == 2.5f);
  CHECK(sampling.logprobs() == 4);
  CHECK_FALSE(sampling.has_prompt_logprobs());
}

TEST_CASE("absent fields stay absent, except max_tokens 16 of a completion") {
  const auto request = ParseCompletionRequest(R"({"prompt": "x", "temperature": null})");
  REQUIRE(request.ok());
  v1::SamplingParams only;
  only.set_max_tokens(16);
  CHECK(request->sampling().SerializeAsString() == only.SerializeAsString());
  const auto chat = ParseChatRequest(R"({"messages": [{"role": "user", "content": "x"}]})");
  REQUIRE(chat.ok());
  CHECK(chat->sampling().ByteSizeLong() == 0);
}

TEST_CASE("a prompt is text, token ids or a list of both") {
  const auto prompts = [](const std::string& prompt) {
    auto request = ParseCompletionRequest(R"({"prompt": )" + prompt + "}");
    REQUIRE(request.ok());
    return request->prompts;
  };
  CHECK(prompts("[1, 2]").at(0).tokens().ids_size() == 2);
  CHECK(prompts(R"(["a", "b"])").at(1).text() == "b");
  const auto mixed = prompts(R"([[1], "b", [2, 3]])");
  REQUIRE(mixed.size() == 3);
  CHECK(mixed[0].tokens().ids(0) == 1);
  CHECK(mixed[1].text() == "b");
  CHECK(mixed[2].tokens().ids(1) == 3);
  CHECK(CompletionProblem("") == "prompt: is missing");
  CHECK(CompletionProblem(R"("prompt": [])") == "prompt: is empty");
  CHECK(CompletionProblem(R"("prompt": 5)").starts_with("prompt: must be a string"));
  CHECK(CompletionProblem(R"("prompt": [1, "a"])") == "prompt[1]: is not a token id");
  CHECK(CompletionProblem(R"("prompt": [[1], [1.5]])") == "prompt[1][0]: is not a token id");
  CHECK(CompletionProblem(R"("prompt": ["a", 1])").starts_with("prompt[1]: must be a string"));
  CHECK(CompletionProblem(R"("prompt": [99999999999])") == "prompt[0]: is not a token id");
  std::string many = "\"a\"";
  for (size_t i = 0; i < kMaxPrompts; ++i) many += ",\"a\"";
  CHECK(CompletionProblem(R"("prompt": [)" + many + "]").starts_with("prompt: 1025 prompts"));
}

TEST_CASE("echo adds the prompt's logprobs and allows max_tokens 0") {
  const auto request =
      ParseCompletionRequest(R"({"prompt": "x", "echo": true, "logprobs": 2, "max_tokens": 0})");
  REQUIRE(request.ok());
  CHECK(request->echo);
  CHECK(request->without_completion);
  CHECK_FALSE(request->prompt_logprobs);
  CHECK(request->sampling().max_tokens() == 1);
  CHECK(request->sampling().prompt_logprobs() == 2);
  CHECK(request->prompts[0].echo());
}

TEST_CASE("chat messages are parsed") {
  const auto request = ParseChatRequest(R"({"messages": [
      {"role": "developer", "content": "Be kind."},
      {"role": "user", "name": "x", "content": [{"type": "text", "text": "a"},
                                               {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "It", "tool_calls": [], "refusal": null}],
    "max_completion_tokens": 9, "max_tokens": 5, "logprobs": true, "top_logprobs": 3,
    "continue_final_message": true, "add_generation_prompt": false,
    "chat_template_kwargs": {"b": 1, "a": [2.0]}, "response_format": {"type": "text"},
    "tool_choice": "none"})");
  REQUIRE(request.ok());
  const v1::ChatRequest& chat = request->chat;
  REQUIRE(chat.messages_size() == 3);
  CHECK(chat.messages(0).role() == "system");
  CHECK(chat.messages(1).content() == "a\nb");
  CHECK(chat.sampling().max_tokens() == 9);
  CHECK(chat.sampling().logprobs() == 3);
  CHECK(chat.continue_final_message());
  CHECK(chat.has_add_generation_prompt());
  CHECK(chat.chat_template_kwargs() == R"({"b":1,"a":[2E0]})");
  CHECK(request->max_tokens_name == std::string("max_completion_tokens"));

  const auto problem = [](const std::string& messages) {
    return std::string(ParseChatRequest(R"({"messages": )" + messages + "}").status().message());
  };
  CHECK(problem("null") == "messages: is missing");
  CHECK(problem("\"x\"") == "messages: must be an array, not a string");
  CHECK(problem("[1]") == "messages[0]: must be an object");
  CHECK(problem(R"([{"role": 1}])") == "messages[0].role: must be a string, not a number");
  CHECK(problem(R"([{"role": "user"}])") == "messages[0].content: is missing");
  CHECK(problem(R"([{"role": "system", "content": null}])") == "messages[0].content: is missing");
  CHECK(problem(R"([{"role": "user", "content": 1}])").starts_with("messages[0].content: must"));
  CHECK(problem(R"([{"role": "user", "content": [{"type": "image_url"}]}])")
            .starts_with("messages[0].content[0].type: 'image_url'"));
  CHECK(problem(R"([{"role": "assistant", "tool_calls": [{}]}])")
            .starts_with("messages[0].tool_calls[0].function: "));
}

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

TEST_CASE("an assistant message may be empty, as when max_tokens ended the reasoning") {
  const auto request = ParseChatRequest(R"({"messages": [
      {"role": "user", "content": "x"},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "refusal": null},
      {"role": "assistant", "thinking": "hm"},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"a\": "}},
        {"id": "b", "function": {"name": "f", "arguments": {"a": 2.5}}},
        {"id": "c", "function": {"name": "f", "arguments": null}},
        {"id": "d", "function": {"name": "f"}}]},
      {"role": "tool", "tool_call_id": "a", "content": null}]})");
  INFO(std::string(request.status().message()));
  REQUIRE(request.ok());
  const v1::ChatRequest& chat = request->chat;
  CHECK_FALSE(chat.messages(1).has_content());
  CHECK(chat.messages(1).reasoning() == "hm");
  CHECK(chat.messages(2).reasoning() == "hm");
  CHECK(chat.messages(3).tool_calls(0).arguments() == R"({"a": )");
  CHECK(chat.messages(3).tool_calls(1).arguments() == R"({"a":2.5})");
  CHECK(chat.messages(3).tool_calls(2).arguments().empty());
  CHECK(chat.messages(3).tool_calls(3).arguments().empty());
  CHECK_FALSE(chat.messages(4).has_content());
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

TEST_CASE("the part of a request that is kept for its answers is small") {
  const std::string large(1 << 20, 'x');
  const auto kept_bytes = [](const ApiRequest& request) {
    const ApiRequest kept = WithoutInput(request);
    CHECK(kept.n_prompts() == request.n_prompts());
    CHECK(kept.n() == 3);
    CHECK(kept.sampling().stop(0) == "end");
    CHECK(kept.sampling().has_grammar());
    CHECK(kept.stream);
    const absl::Status status = absl::InvalidArgumentError("sampling.grammar: is none");
    CHECK(InClientTerms(kept, 0, status) == InClientTerms(request, 0, status));
    // Cleared fields may keep their memory. SpaceUsedLong of everything would read maps, whose
    // layout under the thread sanitizer differs from that in protobuf's library.
    size_t n = kept.chat.messages().SpaceUsedExcludingSelfLong() + kept.chat.tools().capacity() +
               kept.chat.chat_template_kwargs().capacity() + kept.chat.ByteSizeLong();
    for (const v1::GenerateRequest& one : kept.prompts) n += one.ByteSizeLong();
    return n;
  };
  const std::string common =
      R"("stream": true, "n": 3, "stop": "end", "guided_regex": ")" + large + R"(", )";
  const auto chat = ParseChatRequest(
      "{" + common + R"("messages": [{"role": "user", "content": ")" + large +
      R"("}], "tools": [{"type": "function", "function": {"name": "f", "description": ")" + large +
      R"("}}], "chat_template_kwargs": {"a": ")" + large + R"("}})");
  REQUIRE(chat.ok());
  CHECK(kept_bytes(*chat) < 4096);
  const auto texts =
      ParseCompletionRequest("{" + common + R"("prompt": ["a", ")" + large + R"("]})");
  REQUIRE(texts.ok());
  CHECK(kept_bytes(*texts) < 4096);
}

TEST_CASE("the router's errors use the client's name for a field") {
  const auto told = [](const ApiRequest& request, const char* message) {
    return std::string(InClientTerms(request, 1, absl::InvalidArgumentError(message)).message());
  };
  ApiRequest chat;
  chat.is_chat = true;
  chat.max_tokens_name = "max_completion_tokens";
  CHECK(told(chat, "sampling.max_tokens: 9") == "max_completion_tokens: 9");
  CHECK(told(chat, "sampling.logprobs: 9") == "top_logprobs: 9");
  CHECK(told(chat, "prompt: is empty") == "messages: is empty");
  CHECK(told(chat, "messages[0].role: is empty") == "messages[0].role: is empty");
  CHECK(told(chat, "sampling.grammar.lark: bad") == "tools: bad");
  CHECK(told(chat, "tool_choice.name: no tool") == "tool_choice: no tool");
  CHECK(told(chat, "tools[1].function.name: bad") == "tools[1].function.name: bad");
  CHECK(told(chat, "messages[2].tool_calls[0].arguments: bad") ==
        "messages[2].tool_calls[0].function.arguments: bad");
  CHECK(told(chat, "json_events.paths[1]: bad") == "stream_options.json_events[1]: bad");
  chat.grammar_field = "guided_choice";
  chat.chat.mutable_sampling()->mutable_grammar();
  CHECK(told(chat, "sampling.grammar.choice.texts[1]: bad") == "guided_choice[1]: bad");
  CHECK(told(chat, "sampling.grammar.choice: bad") == "guided_choice: bad");
  CHECK(told(chat, "sampling.grammar: too complex") == "guided_choice: too complex");
  ApiRequest one;
  one.prompts.emplace_back();
  one.stop_is_string = true;
  CHECK(told(one, "sampling.stop[0]: is empty") == "stop: is empty");
  CHECK(told(one, "sampling.logprobs: 9") == "logprobs: 9");
  CHECK(told(one, "tokens.ids[3]: bad") == "prompt[3]: bad");
  CHECK(told(one, "text, as tokens[3]: bad") == "prompt, as tokens[3]: bad");
  ApiRequest many;
  many.prompts.emplace_back();
  many.prompt_is_list = true;
  CHECK(told(many, "tokens.ids[3]: bad") == "prompt[1][3]: bad");
  CHECK(told(many, "prompt: is empty") == "prompt[1]: is empty");
}

}  // namespace
}  // namespace stagecoach::router::http
