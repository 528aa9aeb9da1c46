#include "common/text/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/text/grammar_test_support.h"

namespace stagecoach::text {
namespace {

// Returns a random text of the grammar, as a model with random weights would write it. Empty if
// `max_tokens` is not enough.
std::string Write(const GrammarFixture& fixture, const GrammarSource& source, uint32_t seed,
                  int max_tokens = 4000) {
  const auto matcher = fixture.Matcher(source);
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < max_tokens; ++i) {
    const Mask mask = Next(fixture, *matcher);
    for (const int32_t eos : kEos) CHECK(mask.Allows(eos) == mask.may_end);
    const std::vector<int32_t> others = mask.Ids(false);
    CHECK(std::all_of(others.begin(), others.end(), [&](int32_t id) {
      return id < fixture.tokenizer->vocab_size() && !fixture.tokenizer->IsSpecial(id);
    }));
    // Ends early when possible: a random walk through JSON opens more brackets than it closes.
    if (others.empty() || (mask.may_end && random() % 2 == 0)) {
      REQUIRE(mask.may_end);
      return fixture.tokenizer->Decode(ids, false).value();
    }
    ids.push_back(others[random() % others.size()]);
    REQUIRE(matcher->Consume(std::span(&ids.back(), 1)).ok());
  }
  return "";
}

TEST_CASE("Random tokens that a JSON Schema grammar allows give a valid document") {
  const GrammarFixture fixture(GENERATE("byte_level", "byte_fallback"));
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::string text = Write(fixture, Schema(kPerson), seed);
    INFO(text);
    const auto document = boost::json::parse(text);
    CHECK(boost::json::serialize(document).size() <= text.size());
    const int64_t age = document.at("age").as_int64();
    CHECK((age >= 0 && age <= 120));
    CHECK(document.as_object().size() == 3);
    for (const auto& tag : document.at("tags").as_array()) {
      CHECK((tag.as_string() == "a\nb" || tag.as_string() == "ü"));
    }
    CHECK(document.at("name").is_string());
  }
}

TEST_CASE("A choice among 4000 texts works") {
  boost::json::array texts;
  for (int i = 0; i < 4000; ++i) texts.emplace_back(fmt::format("text number {}", i));
  GrammarSource source{.kind = GrammarKind::kChoice, .text = boost::json::serialize(texts)};
  const std::string text = Write(ByteLevel(), source, 1);
  CHECK(std::any_of(texts.begin(), texts.end(),
                    [&](const auto& one) { return one.as_string() == text; }));
}

TEST_CASE("A grammar reports its size in bytes") {
  const auto small = ByteLevel().vocabulary->Compile(Regex("ab")).value();
  const auto large =
      ByteLevel().vocabulary->Compile(Regex("[0-9a-f]{8}" + std::string(20'000, 'x'))).value();
  CHECK(small->n_bytes() > 1000);
  CHECK(large->n_bytes() > small->n_bytes() + 100'000);
}

TEST_CASE("JSON is compact by default, and optional whitespace has bounded runs") {
  GrammarSource source = Schema(R"({"type": "array", "items": {"type": "object",
      "required": ["a", "b"], "additionalProperties": false,
      "properties": {"a": {"const": 1}, "b": {"type": "null"}}}, "minItems": 2, "maxItems": 2})");
  CHECK(Write(ByteLevel(), source, 1) == R"([{"a":1,"b":null},{"a":1,"b":null}])");
  source.any_whitespace = true;
  std::set<size_t> sizes;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::string text = Write(ByteLevel(), source, seed);
    INFO(text);
    REQUIRE(!text.empty());
    CHECK(boost::json::serialize(boost::json::parse(text)) ==
          R"([{"a":1,"b":null},{"a":1,"b":null}])");
    CHECK_FALSE(std::regex_search(text, std::regex(R"(\s{68})")));
    sizes.insert(text.size());
  }
  CHECK(sizes.size() > 5);
}

TEST_CASE("The JSON object grammar allows any object") {
  int n_whole = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const std::string text = Write(ByteLevel(), {.kind = GrammarKind::kJsonObject}, seed, 200);
    if (text.empty()) continue;
    ++n_whole;
    CHECK(boost::json::parse(text).is_object());
  }
  CHECK(n_whole > 5);
}

TEST_CASE("The whole text matches the regex, with or without anchors") {
  const auto [pattern, checked] = GENERATE(table<const char*, const char*>({
      {"[a-c]{2,5}-(x|yz)", "[a-c]{2,5}-(x|yz)"},
      {"^[a-c]{2}$", "[a-c]{2}"},
      {"^(ab|c)d?$", "(ab|c)d?"},
      {"^ab$|^cd$", "ab|cd"},
      {R"(\$[1-9]/\d\$)", R"(\$[1-9]/\d\$)"},
      {R"([$|^]\|x)", R"([$|^]\|x)"},
      {R"(a\\)", R"(a\\)"},
      {R"("\w+"\.)", R"("\w+"\.)"},
  }));
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const std::string text = Write(ByteLevel(), Regex(pattern), seed);
    INFO(pattern << " gave " << text);
    // In a grammar, \d and \w match Unicode: all ASCII characters of std::regex, and others.
    const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
    if (ascii) CHECK(std::regex_match(text, std::regex(checked)));
  }
}

TEST_CASE("A choice gives one of its texts, and every text is possible") {
  const std::vector<std::string> texts = {"yes",    "no", "no way", " \"quoted\" \\ \n",
                                          "größer", "/"};
  const std::string source = boost::json::serialize(boost::json::value_from(texts));
  std::set<std::string> seen;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    seen.insert(Write(ByteLevel(), {.kind = GrammarKind::kChoice, .text = source}, seed));
  }
  CHECK(seen == std::set<std::string>(texts.begin(), texts.end()));
}

TEST_CASE("Lark grammars can contain JSON and special tokens by id") {
  const GrammarFixture& fixture = ByteLevel();
  CHECK(Write(fixture, Lark("start: a b\na: \"x\"\nb: /y{3}/\n"), 1) == "xyyy");
  CHECK(Write(fixture, Lark(R"(start: "<" %json {"const": 7} ">")"), 1) == "<7>");
  const auto matcher = fixture.Matcher(Lark("start: \"x\" <[0]> \"y\"\n"));
  const int32_t x = *fixture.tokenizer->TokenId("x");
  CHECK_FALSE(Next(fixture, *matcher).Allows(0));
  REQUIRE(matcher->Consume(std::span(&x, 1)).ok());
  CHECK(Next(fixture, *matcher).Ids(true) == std::vector<int32_t>{0});
}

TEST_CASE("A grammar can begin after a text or a special token") {
  const GrammarFixture& fixture = ByteLevel();
  const std::string special(fixture.tokenizer->TokenBytes(0));
  for (const std::string& after : {std::string("</think>"), special}) {
    GrammarSource source = Regex("[0-9]{3}");
    source.begins_after = after;
    const auto matcher = fixture.Matcher(source);
    for (const char* piece : {"a", "\n", "1", "x"}) {
      const auto ids = fixture.tokenizer->Encode(piece, false).value();
      CHECK_FALSE(Next(fixture, *matcher).may_end);
      REQUIRE(matcher->Consume(ids).ok());
    }
    const auto end = fixture.tokenizer->Encode(after, false).value();
    CHECK(Next(fixture, *matcher).Allows(end[0]));
    REQUIRE(matcher->Consume(end).ok());
    CHECK_FALSE(Next(fixture, *matcher).Allows(*fixture.tokenizer->TokenId("a")));
    REQUIRE(matcher->Consume(fixture.tokenizer->Encode("\n123", false).value()).ok());
    CHECK(Next(fixture, *matcher).may_end);
  }
}

}  // namespace
}  // namespace stagecoach::text
