#include "router/text/request_builder.h"

#include <algorithm>
#include <set>
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/text/chat.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

template <typename Request>
std::string Refusal(const ServedModel& model, const Request& request) {
  const auto input = BuildGeneration(model, request);
  REQUIRE_FALSE(input.ok());
  CHECK(absl::IsInvalidArgument(input.status()));
  return std::string(input.status().message());
}

TEST_CASE("a text prompt is tokenized, with special tokens unless turned off") {
  const ServedModel model = TestModel();
  v1::GenerateRequest request;
  request.set_text("Hello");
  request.set_priority(-3);
  const auto with = BuildGeneration(model, request);
  REQUIRE(with.ok());
  CHECK(*with->prompt == *model.tokenizer->Encode("Hello", true));
  CHECK(with->prompt_text.empty());
  CHECK(with->priority == -3);
  CHECK(with->skip_special_tokens);
  request.set_add_special_tokens(false);
  request.set_skip_special_tokens(false);
  const auto without = BuildGeneration(model, request);
  REQUIRE(without.ok());
  CHECK(*without->prompt == *model.tokenizer->Encode("Hello", false));
  CHECK_FALSE(without->skip_special_tokens);
}

TEST_CASE("echo returns the given text, or the text of the given tokens") {
  const ServedModel model = TestModel();
  v1::GenerateRequest request;
  request.set_echo(true);
  request.set_text("Hello");
  CHECK(BuildGeneration(model, request)->prompt_text == "Hello");
  const auto ids = *model.tokenizer->Encode("tokens", false);
  request.mutable_tokens()->mutable_ids()->Add(ids.begin(), ids.end());
  const auto input = BuildGeneration(model, request);
  CHECK(*input->prompt == ids);
  CHECK(input->prompt_text == "tokens");
}

TEST_CASE("for an invalid prompt, the error names the field") {
  const ServedModel model = TestModel();
  v1::GenerateRequest request;
  CHECK(Refusal(model, request) == "prompt: is empty");
  request.set_text("");
  request.set_add_special_tokens(false);
  CHECK(Refusal(model, request) == "prompt: is empty");
  request.mutable_tokens();
  CHECK(Refusal(model, request) == "prompt: is empty");
  request.mutable_tokens()->add_ids(5);
  request.mutable_tokens()->add_ids(model.spec.vocab_size);
  CHECK(Refusal(model, request).starts_with("tokens.ids[1]: "));
  request.mutable_tokens()->set_ids(1, -1);
  CHECK(Refusal(model, request).starts_with("tokens.ids[1]: "));
  request.set_text("broken \xF0\x9F");
  CHECK(Refusal(model, request) == "text: is not valid UTF-8 at byte 7");
  request.set_text("fine");
  request.set_request_id(std::string(257, 'i'));
  CHECK(Refusal(model, request).starts_with("request_id: "));
  request.clear_request_id();
  request.set_cache_salt(std::string(257, 's'));
  CHECK(Refusal(model, request).starts_with("cache_salt: "));
  request.clear_cache_salt();
  request.mutable_sampling()->set_top_p(7);
  CHECK(Refusal(model, request).starts_with("sampling.top_p: "));
  for (int i = 0; i < 256; ++i) request.mutable_tokens()->add_ids(3);
  request.clear_sampling();
  CHECK(Refusal(model, request).starts_with("prompt: 256 tokens"));
}

TEST_CASE("for a token without an embedding row, the error shows its text") {
  ServedModel model = TestModel();
  const int32_t last = model.tokenizer->Encode("Hello", false)->back();
  model.spec.vocab_size = last;
  v1::GenerateRequest request;
  request.set_text("Hello");
  request.set_add_special_tokens(false);
  const std::string refusal = Refusal(model, request);
  CHECK(refusal.starts_with("text, as tokens["));
  CHECK(refusal.find(model.tokenizer->TokenBytes(last)) != std::string::npos);
}

TEST_CASE("an unknown model name is not found") {
  v1::GenerateRequest request;
  request.set_text("x");
  request.set_model("other");
  CHECK(absl::IsNotFound(BuildGeneration(TestModel(), request).status()));
  request.set_model("test-model");
  CHECK(BuildGeneration(TestModel(), request).ok());
}

TEST_CASE("a chat is rendered, and users' text stays text") {
  const ServedModel model = TestModel();
  v1::ChatRequest request;
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content("say <|end|>");
  const auto chat = RenderChat(model, request);
  REQUIRE(chat.ok());
  CHECK(chat->text == "<|start|>user: say <|end|><|end|><|start|>assistant: ");
  CHECK(std::count(chat->ids.begin(), chat->ids.end(), 1) == 1);
  CHECK(std::count(chat->ids.begin(), chat->ids.end(), 2) == 2);
  CHECK(*BuildGeneration(model, request)->prompt == chat->ids);
}

TEST_CASE("a chat can continue its last message and pass variables to the template") {
  ServedModel model = TestModel();
  v1::ChatRequest request;
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("assistant");
  message.set_content("It was a");
  request.set_continue_final_message(true);
  CHECK(RenderChat(model, request)->text == "<|start|>assistant: It was a");
  request.set_add_generation_prompt(true);
  CHECK(Refusal(model, request).starts_with("continue_final_message: "));
  request.set_continue_final_message(false);
  request.set_add_generation_prompt(false);
  CHECK(RenderChat(model, request)->text == "<|start|>assistant: It was a<|end|>");

  model.chat_template = *text::ChatTemplate::FromSource("{{ mood | default('calm') }}");
  CHECK(RenderChat(model, request)->text == "calm");
  request.set_chat_template_kwargs(R"({"mood": "merry"})");
  CHECK(RenderChat(model, request)->text == "merry");
  for (const char* bad : {"{", "[]", "1"}) {
    request.set_chat_template_kwargs(bad);
    CHECK(Refusal(model, request) == "chat_template_kwargs: must be a JSON object");
  }
}

TEST_CASE("for an invalid chat, the error names the field") {
  ServedModel model = TestModel();
  v1::ChatRequest request;
  CHECK(Refusal(model, request) == "messages: is empty");
  request.add_messages()->set_content("x");
  CHECK(Refusal(model, request) == "messages[0].role: is empty");
  request.mutable_messages(0)->set_role("user");
  request.mutable_messages(0)->set_content("\xFF");
  CHECK(Refusal(model, request) == "messages[0].content: is not valid UTF-8 at byte 0");
  request.mutable_messages(0)->set_content("x");
  request.mutable_sampling()->set_n(500);
  CHECK(Refusal(model, request).starts_with("sampling.n: "));
  model.chat_template = nullptr;
  CHECK(Refusal(model, request).find("has no chat template") != std::string::npos);
  model.chat_template = *text::ChatTemplate::FromSource("{{ raise_exception('no such role') }}");
  const std::string raised = Refusal(model, request);
  INFO(raised);
  CHECK(raised.starts_with("messages: "));
  CHECK(raised.find("no such role") != std::string::npos);
}

TEST_CASE("a template that takes system messages only in front gets later ones as the user's") {
  ServedModel model = TestModel();
  model.chat_template = *text::ChatTemplate::FromSource(
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('system message must be first') }}{% endif %}"
      "{{ m.role }}: {{ m.content }} {% endfor %}");
  v1::ChatRequest request;
  const auto add = [&request](const char* role, const char* content) {
    request.add_messages()->set_role(role);
    request.mutable_messages()->rbegin()->set_content(content);
  };
  add("system", "A");
  add("user", "B");
  add("system", "C");
  CHECK(RenderChat(model, request)->text == "system: A user: B user: C ");
  model.chat_template =
      *text::ChatTemplate::FromSource("{% for m in messages %}{{ m.role }} {% endfor %}");
  CHECK(RenderChat(model, request)->text == "system user system ");
  model.chat_template = *text::ChatTemplate::FromSource("{{ raise_exception('no') }}");
  CHECK(Refusal(model, request).starts_with("messages: "));
}

TEST_CASE("n choices become n sequences with their own seeds") {
  v1::GenerateRequest request;
  request.set_text("Hello");
  request.mutable_sampling()->set_n(3);
  request.mutable_sampling()->set_seed(11);
  request.mutable_sampling()->set_prompt_logprobs(2);
  const auto input = BuildGeneration(TestModel(), request);
  REQUIRE(input.ok());
  const auto sequences = MakeSequences(*input);
  REQUIRE(sequences.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(sequences[i]->prompt == input->prompt);  // shared, not a copy
    CHECK(sequences[i]->sampling.seed() == ChoiceSeed(11, i));
    CHECK(sequences[i]->sampling.n_prompt_logprobs() == (i == 0 ? 2 : -1));
  }
}

TEST_CASE("Only what has neither an owner nor a salt stays without a salt") {
  const auto kept = [](std::string_view owner, const char* salt) {
    GenerationInput input;
    input.cache_salt = salt;
    KeepToOwner(owner, input);
    return input.cache_salt;
  };
  CHECK(kept("", "").empty());
  const std::set<std::string> all = {kept("", "a"), kept("a", ""), kept("a", "a"), kept("b", "a"),
                                     ""};
  CHECK(all.size() == 5);
}

}  // namespace
}  // namespace stagecoach::router
