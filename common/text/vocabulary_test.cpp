// Tests of tokenizers in formats other than tokenizer.json, against the results of the libraries
// that define these formats (testdata/make_vocabularies.py).
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/text/chat_template.h"
#include "common/text/test_support.h"
#include "common/text/tokenizer.h"

namespace stagecoach::text {
namespace {

using Catch::Matchers::ContainsSubstring;

// Fills a folder with a vocabulary of the test data and a tokenizer_config.json.
void Fill(const TempDir& dir, std::string_view name, const boost::json::value& config) {
  for (const auto& entry : std::filesystem::directory_iterator(TestData(name))) {
    if (entry.path().filename() == "reference.json") continue;
    std::filesystem::copy(entry.path(), dir.path());
  }
  dir.Write("tokenizer_config.json", boost::json::serialize(config));
}

void CheckAgainst(const std::shared_ptr<const Tokenizer>& tokenizer,
                  const boost::json::value& variant) {
  for (const auto& test : variant.at("encode").as_array()) {
    const std::string text = Text(test.at("text"));
    const std::vector<TextRange> all = {{0, text.size()}};
    INFO(boost::json::serialize(test.at("text")));
    CHECK(tokenizer->Encode(text, false).value() == Ids(test.at("ids")));
    CHECK(tokenizer->Encode(text, true).value() == Ids(test.at("ids_special")));
    CHECK(tokenizer->EncodeRendered(text, all).value() == Ids(test.at("ids_plain")));
  }
  for (const auto& test : variant.at("decode").as_array()) {
    const auto ids = Ids(test.at("ids"));
    INFO(boost::json::serialize(test.at("ids")));
    CHECK(tokenizer->Decode(ids, false).value() == Text(test.at("text")));
    CHECK(tokenizer->Decode(ids, true).value() == Text(test.at("skipped")));
    CHECK(Stream(tokenizer, ids, false) == Text(test.at("text")));
    CHECK(Stream(tokenizer, ids, true) == Text(test.at("skipped")));
  }
}

TEST_CASE("Every kind of vocabulary gives the same ids and text as its own library") {
  const char* name =
      GENERATE("sentencepiece_bpe", "sentencepiece_unigram", "vocab_merges", "tekken");
  const auto reference = Reference(name);
  for (const auto& variant : reference.as_array()) {
    INFO(name << " " << boost::json::serialize(variant.at("config")));
    const TempDir dir;
    Fill(dir, name, variant.at("config"));
    const auto tokenizer = Tokenizer::Load(dir.path());
    INFO(tokenizer.status().ToString());
    REQUIRE(tokenizer.ok());
    CheckAgainst(*tokenizer, variant);
  }
}

TEST_CASE("The tokenizer from a .gguf file equals the tokenizer of its source checkpoint") {
  const auto llama = Tokenizer::Load(TestData("gguf/llama.gguf")).value();
  CheckAgainst(llama, Reference("sentencepiece_bpe").at(0));
  CHECK(llama->bos_token() == "<s>");
  CHECK(llama->eos_token() == "</s>");

  const auto qwen2 = Tokenizer::Load(TestData("gguf/qwen2.gguf")).value();
  CheckAgainst(qwen2, Reference("vocab_merges").at(3));
  CHECK(qwen2->eos_token() == "<|endoftext|>");
  // Padding rows of the embedding are not tokens.
  CHECK_FALSE(qwen2->TokenId("[PAD1]").has_value());

  const auto chat = ChatTemplate::Load(TestData("gguf/llama.gguf"), "").value();
  CHECK(chat->Render(R"([{"role": "user", "content": "hi"}])", "", {})->text == "<s>hi</s>");
}

TEST_CASE("Older files can also define added and special tokens") {
  const TempDir dir;
  Fill(dir, "vocab_merges", {{"tokenizer_class", "Qwen2TokenizerFast"}});
  const auto n = Tokenizer::Load(dir.path()).value()->vocab_size();
  dir.Write("added_tokens.json", R"({"<|im_end|>": )" + std::to_string(n + 1) +
                                     R"(, "<|im_start|>": )" + std::to_string(n) + "}");
  dir.Write("special_tokens_map.json", R"({"eos_token": {"content": "<|im_end|>"},
    "additional_special_tokens": ["<|im_start|>", "<|more|>"]})");
  const auto tokenizer = Tokenizer::Load(dir.path()).value();
  CHECK(tokenizer->TokenId("<|im_start|>") == n);
  CHECK(tokenizer->TokenId("<|im_end|>") == n + 1);
  CHECK(tokenizer->TokenId("<|more|>") == n + 2);
  CHECK(tokenizer->IsSpecial(n));
  CHECK(tokenizer->IsSpecial(n + 1));
  CHECK(tokenizer->eos_token() == "<|im_end|>");
}

TEST_CASE("A reserved piece gets the name that the fine-tune gave to its id") {
  const TempDir dir;
  Fill(dir, "sentencepiece_bpe", boost::json::parse(R"({"added_tokens_decoder":
    {"3": {"content": "<|im_start|>", "special": true, "normalized": false}}})"));
  const auto tokenizer = Tokenizer::Load(dir.path()).value();
  CHECK(tokenizer->TokenId("<|im_start|>") == 3);
  CHECK(tokenizer->IsSpecial(3));
}

TEST_CASE("For a bad vocabulary, the error names the file and the problem") {
  const TempDir dir;
  const auto message = [&] {
    const auto status = Tokenizer::Load(dir.path()).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  SECTION("a truncated SentencePiece file") {
    const std::string whole = ReadFile(TestData("sentencepiece_bpe/tokenizer.model"));
    dir.Write("tokenizer.model", std::string_view(whole).substr(0, whole.size() / 2));
    CHECK_THAT(message(), ContainsSubstring("/tokenizer.model: is not a SentencePiece model") &&
                              ContainsSubstring("is the file whole?"));
  }
  SECTION("a file of another format under this name") {
    dir.Write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\n");
    CHECK_THAT(message(), ContainsSubstring("is not a SentencePiece model"));
  }
  SECTION("a merge of three parts") {
    dir.Write("vocab.json", ReadFile(TestData("vocab_merges/vocab.json")));
    dir.Write("merges.txt", "#version: 0.2\na b\na b c\n");
    CHECK_THAT(message(), ContainsSubstring("merges.txt, line 3: \"a b c\" is not two tokens"));
  }
  SECTION("a vocabulary without all bytes") {
    dir.Write("vocab.json", R"({"a": 0})");
    dir.Write("merges.txt", "");
    CHECK_THAT(message(), ContainsSubstring("/vocab.json with merges.txt: ") &&
                              ContainsSubstring("no token for"));
  }
  SECTION("ids of another checkpoint") {
    Fill(dir, "vocab_merges", boost::json::parse(R"({"added_tokens_decoder":
      {"90000": {"content": "<|x|>", "special": true}}})"));
    CHECK_THAT(message(), ContainsSubstring("\"<|x|>\" is declared as id 90000, but is"));
  }
  SECTION("an unknown pre-tokenizer") {
    Fill(dir, "vocab_merges", {{"tokenizer_class", "BloomTokenizer"}});
    CHECK_THAT(message(),
               ContainsSubstring("BloomTokenizer") && ContainsSubstring("GPT2Tokenizer"));
  }
  SECTION("a gap in the tekken ranks") {
    dir.Write("tekken.json", R"({"config": {"pattern": "x"}, "vocab": [],
      "special_tokens": [{"rank": 1, "token_str": "<s>"}]})");
    CHECK_THAT(message(), ContainsSubstring("tekken.json") && ContainsSubstring("count from 0"));
  }
  SECTION("pieces for which the tokenizers library finds no perfect hash") {
    dir.Write("tokenizer.model", ReadFile(TestData("unindexable.model")));
    CHECK_THAT(message(), ContainsSubstring("/tokenizer.model: ") && ContainsSubstring("PtrHash"));
  }
  SECTION("ids that would need tables of gigabytes") {
    dir.Write("tokenizer.json", R"({"version": "1.0", "model": {"type": "WordLevel",
      "unk_token": "a", "vocab": {"a": 4000000000}}, "added_tokens": []})");
    CHECK_THAT(message(), ContainsSubstring("4000000001 token ids"));
  }
}

TEST_CASE("A tokenizer.json whose ByteLevel adds a space is supported") {
  const TempDir dir;
  std::string config = ReadFile(TestData("byte_level/tokenizer.json"));
  auto parsed = boost::json::parse(config);
  parsed.at("pre_tokenizer") = boost::json::parse(
      R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true, "trim_offsets": true})");
  dir.Write("tokenizer.json", boost::json::serialize(parsed));
  const auto with_space = Tokenizer::Load(dir.path()).value();
  CHECK(with_space->Encode("a<|end|>a", false).value() ==
        with_space->Encode(" a<|end|> a", false).value());
  CHECK(with_space->Decode(with_space->Encode("a b", false).value(), false).value() == " a b");
}

TEST_CASE("A unigram model does not turn user text into special tokens") {
  const auto tokenizer = Tokenizer::Load(TestData("sentencepiece_unigram")).value();
  const int32_t eos = tokenizer->TokenId("</s>").value();
  const std::string text = "a </s></s> b</s>";
  const std::vector<TextRange> all = {{0, text.size()}};
  const auto ids = tokenizer->EncodeRendered(text, all).value();
  CHECK(std::count(ids.begin(), ids.end(), eos) == 0);
  const std::vector<TextRange> content = {{0, text.size() - 4}};
  const auto rendered = tokenizer->EncodeRendered(text, content).value();
  CHECK(std::count(rendered.begin(), rendered.end(), eos) == 1);
  CHECK(rendered.back() == eos);
}

}  // namespace
}  // namespace stagecoach::text
