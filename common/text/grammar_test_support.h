// Shared by the tests of grammars: vocabularies, grammars, and the masks of a matcher.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/grammar.h"
#include "common/text/test_support.h"
#include "common/text/tokenizer.h"

namespace stagecoach::text {

inline constexpr int32_t kPadding = 37;
inline constexpr int32_t kEos[] = {1, 2};

// A tokenizer's vocabulary with rows of padding after it.
struct GrammarFixture {
  explicit GrammarFixture(std::string_view name) {
    tokenizer = Tokenizer::Load(TestData(name)).value();
    const TokenTable table =
        MakeTokenTable(*tokenizer, tokenizer->vocab_size() + kPadding, kEos).value();
    vocabulary = GrammarVocabulary::Make(table).value();
  }

  std::unique_ptr<GrammarMatcher> Matcher(const GrammarSource& source) const {
    return vocabulary->Compile(source).value()->NewMatcher().value();
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const GrammarVocabulary> vocabulary;
};

inline const GrammarFixture& ByteLevel() {
  static const GrammarFixture fixture("byte_level");
  return fixture;
}

struct Mask {
  std::vector<uint32_t> words;
  bool may_end = false;

  bool Allows(int32_t id) const { return (words[id / 32] >> (id % 32) & 1) != 0; }
  std::vector<int32_t> Ids(bool with_eos) const {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < static_cast<int32_t>(words.size()) * 32; ++id) {
      if (Allows(id) && (with_eos || (id != kEos[0] && id != kEos[1]))) ids.push_back(id);
    }
    return ids;
  }
};

// Returns the mask of the next token.
inline Mask Next(const GrammarFixture& fixture, GrammarMatcher& matcher) {
  Mask mask{.words = std::vector<uint32_t>(fixture.vocabulary->n_mask_words())};
  const absl::StatusOr<bool> may_end = matcher.Mask(mask.words);
  INFO(may_end.status().ToString());
  REQUIRE(may_end.ok());
  mask.may_end = *may_end;
  return mask;
}

inline GrammarSource Schema(std::string text) {
  return {.kind = GrammarKind::kJsonSchema, .text = std::move(text)};
}
inline GrammarSource Regex(std::string text) {
  return {.kind = GrammarKind::kRegex, .text = std::move(text)};
}
inline GrammarSource Lark(std::string text) {
  return {.kind = GrammarKind::kLark, .text = std::move(text)};
}

inline constexpr const char* kPerson = R"({
  "type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
  "properties": {"name": {"type": "string", "maxLength": 6},
                 "age": {"type": "integer", "minimum": 0, "maximum": 120},
                 "tags": {"type": "array", "maxItems": 3, "items": {"enum": ["a\nb", "ü"]}}}})";

}  // namespace stagecoach::text
