// A served model without weights. It uses the byte-level tokenizer of common/text's test data: 400
// ordinary tokens, of which 3..63 are single ASCII characters, and special tokens 0..2.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "catch2/catch_test_macros.hpp"
#include "router/text/served_model.h"

namespace stagecoach::router {

inline constexpr std::string_view kTestTemplate =
    "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant: {% endif %}";

inline std::shared_ptr<const text::Tokenizer> TestTokenizer(const std::string& name) {
  auto tokenizer = text::Tokenizer::Load(std::string(SC_ROUTER_TESTDATA) + "/" + name);
  REQUIRE(tokenizer.ok());
  return *tokenizer;
}

inline ServedModel TestModel() {
  ServedModel model;
  model.name = "test-model";
  model.spec.architecture = "LlamaForCausalLM";
  model.spec.layers.resize(4);
  model.tokenizer = TestTokenizer("byte_level");
  model.spec.vocab_size = model.tokenizer->vocab_size();
  auto chat_template = text::ChatTemplate::FromSource(kTestTemplate);
  REQUIRE(chat_template.ok());
  model.chat_template = *chat_template;
  model.defaults.eos_ids = {1};
  static const auto vocabulary = [&] {
    const auto table =
        text::MakeTokenTable(*model.tokenizer, model.spec.vocab_size, model.defaults.eos_ids);
    return text::GrammarVocabulary::Make(table.value()).value();
  }();
  model.grammars = MakeGrammarCache(vocabulary);
  model.dtype = "float32";
  model.max_model_len = 256;
  model.max_logprobs = 5;
  return model;
}

}  // namespace stagecoach::router
