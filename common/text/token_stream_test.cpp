#include "common/text/token_stream.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>
#include <string>
#include <vector>

#include "common/text/test_support.h"
#include "common/text/utf8.h"

namespace stagecoach::text {
namespace {

std::shared_ptr<const Tokenizer> Load(std::string_view name) {
  return Tokenizer::Load(TestData(name)).value();
}

// Makes a tokenizer of "▁hi", "##x", "▁", "<0xC3>", "<0xA9>", "y" and " y" with the given decoder.
std::shared_ptr<const Tokenizer> WithDecoder(const std::string& decoder) {
  const TempDir dir;
  dir.Write("tokenizer.json", R"({"version": "1.0", "added_tokens": [],
    "model": {"type": "WordLevel", "unk_token": "y", "vocab":
      {"▁hi": 0, "##x": 1, "▁": 2, "<0xC3>": 3, "<0xA9>": 4, "y": 5, " y": 6}},
    "decoder": )" + decoder + "}");
  return Tokenizer::Load(dir.path()).value();
}

void CheckRandomSequences(const std::shared_ptr<const Tokenizer>& tokenizer, int n_ids) {
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::vector<int32_t> ids(random() % 12);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % n_ids);
    const bool skip_special_tokens = i % 2 == 0;
    TokenStream stream(tokenizer, skip_special_tokens);
    std::string text;
    bool whole_characters = true;
    for (int32_t id : ids) {
      const std::string part = stream.Push(id);
      whole_characters = whole_characters && IsUtf8(part);
      text += part;
    }
    text += stream.Flush();
    INFO(boost::json::serialize(boost::json::value_from(ids)));
    REQUIRE(whole_characters);
    REQUIRE(text == tokenizer->Decode(ids, skip_special_tokens).value());
  }
}

TEST_CASE("A stream of random tokens gives the decoded text") {
  const auto tokenizer =
      Load(GENERATE("byte_level", "byte_fallback", "sentencepiece_bpe", "sentencepiece_unigram",
                    "vocab_merges", "tekken", "gguf/llama.gguf", "gguf/qwen2.gguf"));
  CheckRandomSequences(tokenizer, tokenizer->vocab_size() + 1);
  // Only ids of single bytes: characters begin, break and end at every step.
  CheckRandomSequences(tokenizer, 259);
}

TEST_CASE("Every kind of decoder streams the same text as it decodes at once") {
  const std::string decoder =
      GENERATE("null", R"({"type": "ByteLevel"})",
               R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
               R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})",
               R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})",
               R"({"type": "BPEDecoder", "suffix": "x"})", R"({"type": "Fuse"})",
               R"({"type": "ByteFallback"})",
               R"({"type": "CTC", "pad_token": "y", "word_delimiter_token": "▁", "cleanup": true})",
               R"({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})",
               R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]})");
  INFO(decoder);
  CheckRandomSequences(WithDecoder(decoder), 7);
}

TEST_CASE("A character that spans several tokens appears whole with its last token") {
  const auto tokenizer = Load("byte_level");
  const auto id = [&](const char* piece) { return tokenizer->TokenId(piece).value(); };
  TokenStream stream(tokenizer, true);
  CHECK(stream.Push(id("ð")) == "");  // F0 9F 91 8B in the byte-level alphabet
  CHECK(stream.Push(id("Ł")) == "");
  CHECK(stream.Push(id("ĳ")) == "");
  CHECK(stream.Push(id("ĭ")) == "👋");
  CHECK(stream.Push(id("Ã")) == "");
  CHECK(stream.Push(id("a")) == "\uFFFDa");
  CHECK(stream.Push(id("Ã")) == "");
  CHECK(stream.Flush() == "\uFFFD");
  CHECK(stream.Push(id("a")) == "a");
}

TEST_CASE("Special tokens are skipped or shown as requested") {
  const auto tokenizer = Load("byte_level");
  const std::vector<int32_t> ids = {0, tokenizer->TokenId("a").value(), 1};
  CHECK(Stream(tokenizer, ids, true) == "a");
  CHECK(Stream(tokenizer, ids, false) == "<|begin|>a<|end|>");
}

TEST_CASE("One special token can be shown while others are skipped") {
  const auto tokenizer = Load("byte_level");
  TokenStream stream(tokenizer, true, {1});
  CHECK(stream.Push(0).empty());
  CHECK(stream.Push(1) == tokenizer->TokenBytes(1));
  CHECK(stream.Push(2).empty());
}

TEST_CASE("A run of byte tokens becomes text at its end, or only replacements if a byte is bad") {
  const auto tokenizer = Load("byte_fallback");
  const auto id = [&](const char* piece) { return tokenizer->TokenId(piece).value(); };
  TokenStream stream(tokenizer, true);
  CHECK(stream.Push(id("<0xC3>")) == "");
  CHECK(stream.Push(id("<0xA9>")) == "");
  CHECK(stream.Push(id("a")) == "éa");
  CHECK(stream.Push(id("<0xC3>")) == "");
  CHECK(stream.Push(id("<0x28>")) == "");
  CHECK(stream.Flush() == "\uFFFD\uFFFD");
}

TEST_CASE("Only the first space of a SentencePiece text is removed") {
  const auto tokenizer = Load("byte_fallback");
  const int32_t space = tokenizer->TokenId("▁").value();
  const int32_t a = tokenizer->TokenId("a").value();
  TokenStream stream(tokenizer, true);
  CHECK(stream.Push(space) == "");
  CHECK(stream.Push(a) == "a");
  CHECK(stream.Push(space) == " ");
  CHECK(stream.Flush() == "");
}

}  // namespace
}  // namespace stagecoach::text
