#include "router/frontend/http/api_request.h"

#include <fmt/format.h>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/testing/request_problems.h"

namespace stagecoach::router::http {
namespace {

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
