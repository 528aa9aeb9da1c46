// A served model without weights. It uses the byte-level tokenizer of common/text's test data: 400
// ordinary tokens, of which 3..63 are single ASCII characters, and special tokens 0..2.
#pragma once

#include <stdlib.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

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

// The byte-level tokenizer with more special tokens.
inline std::shared_ptr<const text::Tokenizer> TestTokenizerWith(
    std::span<const std::string_view> specials) {
  namespace json = boost::json;
  const std::filesystem::path from = std::filesystem::path(SC_ROUTER_TESTDATA) / "byte_level";
  std::stringstream content;
  content << std::ifstream(from / "tokenizer.json").rdbuf();
  json::value tokenizer = json::parse(content.str());
  json::array& added = tokenizer.at("added_tokens").as_array();
  for (const std::string_view special : specials) {
    json::object token = added[0].as_object();
    token["id"] = added[added.size() - 1].at("id").as_int64() + 1;
    token["content"] = special;
    added.push_back(std::move(token));
  }
  std::string folder = (std::filesystem::temp_directory_path() / "tokenizer_XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::filesystem::copy(from, folder, std::filesystem::copy_options::recursive);
  std::ofstream(folder + "/tokenizer.json") << json::serialize(tokenizer);
  auto loaded = text::Tokenizer::Load(folder);
  std::filesystem::remove_all(folder);
  REQUIRE(loaded.ok());
  return *loaded;
}

inline ServedModel TestModel(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t eos) {
  ServedModel model;
  model.name = "test-model";
  model.spec.architecture = "LlamaForCausalLM";
  model.spec.layers.resize(4);
  model.tokenizer = std::move(tokenizer);
  model.spec.vocab_size = model.tokenizer->vocab_size();
  auto chat_template = text::ChatTemplate::FromSource(kTestTemplate);
  REQUIRE(chat_template.ok());
  model.chat_template = *chat_template;
  model.defaults.eos_ids = {eos};
  const auto table =
      text::MakeTokenTable(*model.tokenizer, model.spec.vocab_size, model.defaults.eos_ids);
  model.grammars = MakeGrammarCache(text::GrammarVocabulary::Make(table.value()).value());
  model.dtype = "float32";
  model.kv_dtype = "fp8";
  model.hidden_dtype = "float32";
  model.max_model_len = 256;
  model.max_logprobs = 5;
  return model;
}

inline ServedModel TestModel() {
  static const ServedModel model = TestModel(TestTokenizer("byte_level"), 1);
  ServedModel copy = model;
  copy.grammars = MakeGrammarCache((*model.grammars)->vocabulary());
  return copy;
}

}  // namespace stagecoach::router
