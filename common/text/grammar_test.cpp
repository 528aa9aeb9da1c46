#include "common/text/grammar.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/text/test_support.h"

namespace stagecoach::text {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr int32_t kPadding = 37;
constexpr int32_t kEos[] = {1, 2};

// A tokenizer's vocabulary with rows of padding after it.
struct House {
  explicit House(std::string_view name) {
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

const House& ByteLevel() {
  static const House house("byte_level");
  return house;
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

Mask Next(const House& house, GrammarMatcher& matcher) {
  Mask mask{.words = std::vector<uint32_t>(house.vocabulary->n_mask_words())};
  const absl::StatusOr<bool> may_end = matcher.Mask(mask.words);
  INFO(may_end.status().ToString());
  REQUIRE(may_end.ok());
  mask.may_end = *may_end;
  return mask;
}

// Returns a random text of the grammar, as a model with random weights would write it. Empty if
// `max_tokens` is not enough.
std::string Write(const House& house, const GrammarSource& source, uint32_t seed,
                  int max_tokens = 4000) {
  const auto matcher = house.Matcher(source);
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < max_tokens; ++i) {
    const Mask mask = Next(house, *matcher);
    for (const int32_t eos : kEos) CHECK(mask.Allows(eos) == mask.may_end);
    const std::vector<int32_t> others = mask.Ids(false);
    CHECK(std::all_of(others.begin(), others.end(), [&](int32_t id) {
      return id < house.tokenizer->vocab_size() && !house.tokenizer->IsSpecial(id);
    }));
    // Ends early when possible: a random walk through JSON opens more brackets than it closes.
    if (others.empty() || (mask.may_end && random() % 2 == 0)) {
      REQUIRE(mask.may_end);
      return house.tokenizer->Decode(ids, false).value();
    }
    ids.push_back(others[random() % others.size()]);
    REQUIRE(matcher->Consume(std::span(&ids.back(), 1)).ok());
  }
  return "";
}

GrammarSource Schema(std::string text) {
  return {.kind = GrammarKind::kJsonSchema, .text = std::move(text)};
}
GrammarSource Regex(std::string text) {
  return {.kind = GrammarKind::kRegex, .text = std::move(text)};
}
GrammarSource Lark(std::string text) {
  return {.kind = GrammarKind::kLark, .text = std::move(text)};
}

constexpr const char* kPerson = R"({
  "type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
  "properties": {"name": {"type": "string", "maxLength": 6},
                 "age": {"type": "integer", "minimum": 0, "maximum": 120},
                 "tags": {"type": "array", "maxItems": 3, "items": {"enum": ["a\nb", "ü"]}}}})";

TEST_CASE("Random tokens that a JSON Schema grammar allows give a valid document") {
  const House house(GENERATE("byte_level", "byte_fallback"));
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const std::string text = Write(house, Schema(kPerson), seed);
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

// Follows `source` with the longest tokens, which take the most work. Returns how many it took.
int FollowToItsEnd(const House& house, const GrammarSource& source, int max_tokens,
                   absl::Status& end) {
  const auto matcher = house.Matcher(source);
  std::vector<uint32_t> words(house.vocabulary->n_mask_words());
  for (int n = 0; n < max_tokens; ++n) {
    if (end = matcher->Mask(words).status(); !end.ok()) return n;
    const std::vector<int32_t> ids = Mask{.words = words}.Ids(false);
    const int32_t longest = *std::max_element(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return house.tokenizer->TokenBytes(a).size() < house.tokenizer->TokenBytes(b).size();
    });
    if (end = matcher->Consume(std::span(&longest, 1)); !end.ok()) return n;
  }
  return max_tokens;
}

TEST_CASE("An ambiguous grammar ends with an error at the same token each time") {
  const GrammarSource source = Lark("start: e\ne: e e e | e e | \"a\" | \"b\"\n");
  absl::Status end;
  const int n_tokens = FollowToItsEnd(ByteLevel(), source, 200, end);
  CHECK(n_tokens < 100);
  CHECK(absl::IsResourceExhausted(end));
  CHECK_THAT(std::string(end.message()), ContainsSubstring("items"));
  absl::Status again;
  CHECK(FollowToItsEnd(ByteLevel(), source, 200, again) == n_tokens);
  CHECK(again == end);
}

TEST_CASE("A choice among 4000 texts works") {
  boost::json::array texts;
  for (int i = 0; i < 4000; ++i) texts.emplace_back(fmt::format("text number {}", i));
  GrammarSource source{.kind = GrammarKind::kChoice, .text = boost::json::serialize(texts)};
  const std::string text = Write(ByteLevel(), source, 1);
  CHECK(std::any_of(texts.begin(), texts.end(),
                    [&](const auto& one) { return one.as_string() == text; }));
}

TEST_CASE("A schema that takes seconds to compile is refused, one with 2000 properties is not") {
  const auto schema = [](int n, bool required) {
    boost::json::object properties;
    boost::json::array names;
    for (int i = 0; i < n; ++i) {
      properties[fmt::format("property_{}", i)] = {{"type", "string"}};
      names.emplace_back(fmt::format("property_{}", i));
    }
    boost::json::object schema{{"type", "object"}, {"properties", properties}};
    if (required) schema["required"] = names;
    return Schema(boost::json::serialize(schema));
  };
  CHECK(ByteLevel().vocabulary->Compile(schema(2000, true)).ok());
  CHECK(ByteLevel().vocabulary->Compile(schema(450, false)).ok());
  CHECK(absl::IsInvalidArgument(ByteLevel().vocabulary->Compile(schema(5000, false)).status()));
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
  const House& house = ByteLevel();
  CHECK(Write(house, Lark("start: a b\na: \"x\"\nb: /y{3}/\n"), 1) == "xyyy");
  CHECK(Write(house, Lark(R"(start: "<" %json {"const": 7} ">")"), 1) == "<7>");
  const auto matcher = house.Matcher(Lark("start: \"x\" <[0]> \"y\"\n"));
  const int32_t x = *house.tokenizer->TokenId("x");
  CHECK_FALSE(Next(house, *matcher).Allows(0));
  REQUIRE(matcher->Consume(std::span(&x, 1)).ok());
  CHECK(Next(house, *matcher).Ids(true) == std::vector<int32_t>{0});
}

TEST_CASE("A grammar can begin after a text or a special token") {
  const House& house = ByteLevel();
  const std::string special(house.tokenizer->TokenBytes(0));
  for (const std::string& after : {std::string("</think>"), special}) {
    GrammarSource source = Regex("[0-9]{3}");
    source.begins_after = after;
    const auto matcher = house.Matcher(source);
    for (const char* piece : {"a", "\n", "1", "x"}) {
      const auto ids = house.tokenizer->Encode(piece, false).value();
      CHECK_FALSE(Next(house, *matcher).may_end);
      REQUIRE(matcher->Consume(ids).ok());
    }
    const auto end = house.tokenizer->Encode(after, false).value();
    CHECK(Next(house, *matcher).Allows(end[0]));
    REQUIRE(matcher->Consume(end).ok());
    CHECK_FALSE(Next(house, *matcher).Allows(*house.tokenizer->TokenId("a")));
    REQUIRE(matcher->Consume(house.tokenizer->Encode("\n123", false).value()).ok());
    CHECK(Next(house, *matcher).may_end);
  }
}

TEST_CASE("A forbidden token is an error for this matcher only") {
  const House& house = ByteLevel();
  const auto grammar = house.vocabulary->Compile(Regex("ab")).value();
  const auto good = grammar->NewMatcher().value();
  const auto bad = grammar->NewMatcher().value();
  const int32_t a = *house.tokenizer->TokenId("a");
  const int32_t b = *house.tokenizer->TokenId("b");
  CHECK(bad->Consume(std::span(&b, 1)).code() == absl::StatusCode::kFailedPrecondition);
  const std::vector<int32_t> both = {a, b};
  REQUIRE(good->Consume(both).ok());
  const Mask end = Next(house, *good);
  CHECK(end.may_end);
  CHECK(end.Ids(true) == std::vector<int32_t>{kEos[0], kEos[1]});
  CHECK(good->Consume(std::span(&a, 1)).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("A matcher that catches up at once equals one that followed each token") {
  const House& house = ByteLevel();
  const auto grammar = house.vocabulary->Compile(Schema(kPerson)).value();
  const auto followed = grammar->NewMatcher().value();
  std::mt19937 random(7);
  std::vector<int32_t> ids;
  for (;;) {
    const Mask expected = Next(house, *followed);
    const auto replayed = grammar->NewMatcher().value();
    REQUIRE(replayed->Consume(ids).ok());
    const Mask mask = Next(house, *replayed);
    CHECK(mask.words == expected.words);
    CHECK(mask.may_end == expected.may_end);
    const std::vector<int32_t> others = expected.Ids(false);
    if (others.empty()) break;
    ids.push_back(others[random() % others.size()]);
    REQUIRE(followed->Consume(std::span(&ids.back(), 1)).ok());
  }
  CHECK(ids.size() > 10);
}

TEST_CASE("Threads can follow sequences of one grammar at the same time") {
  const House& house = ByteLevel();
  const auto grammar = house.vocabulary->Compile(Schema(kPerson)).value();
  std::vector<std::string> alone, together(8);
  const auto write = [&](uint32_t seed) {
    const auto matcher = grammar->NewMatcher().value();
    std::mt19937 random(seed);
    std::vector<int32_t> ids;
    std::vector<uint32_t> words(house.vocabulary->n_mask_words());
    while (matcher->Mask(words).ok()) {
      const std::vector<int32_t> others = Mask{.words = words}.Ids(false);
      if (others.empty()) break;
      ids.push_back(others[random() % others.size()]);
      if (!matcher->Consume(std::span(&ids.back(), 1)).ok()) break;
    }
    return house.tokenizer->Decode(ids, false).value();
  };
  for (uint32_t seed = 0; seed < 8; ++seed) alone.push_back(write(seed));
  {
    std::vector<std::jthread> threads;
    for (uint32_t seed = 0; seed < 8; ++seed) {
      threads.emplace_back([&, seed] { together[seed] = write(seed); });
    }
  }
  CHECK(together == alone);
}

std::string Repeat(std::string_view text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

// Returns definitions that each refer to the next.
std::string Chain(int n) {
  std::string text = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < n; ++i) {
    text += fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}"}},)", i, i + 1);
  }
  return text + fmt::format(R"("d{}":{{"type":"null"}}}}}})", n);
}

std::string Nested(int n) {
  return Repeat(R"({"type":"object","required":["a"],"properties":{"a":)", n) + "{}" +
         Repeat("}}", n);
}

std::string Properties(int n, bool required) {
  std::string text = R"({"type":"object","properties":{)";
  std::string names;
  for (int i = 0; i < n; ++i) {
    text += fmt::format(R"({}"p{}":{{"type":"string","pattern":"^x{}"}})", i > 0 ? "," : "", i, i);
    names += fmt::format("{}\"p{}\"", i > 0 ? "," : "", i);
  }
  return text + "}" + (required ? ",\"required\":[" + names + "]" : "") + "}";
}

TEST_CASE("An invalid grammar is refused with a reason") {
  const auto [source, reason] = GENERATE(table<GrammarSource, const char*>({
      {Schema("{\"type\": \"object\""), "not valid JSON"},
      {Schema(""), "not valid JSON"},
      {Schema("[1]"), "a schema must be an object or a boolean"},
      {Schema("false"), "allows nothing"},
      {Schema(R"({"type": "strin"})"), "strin"},
      {Schema(R"({"type": "array", "uniqueItems": true})"), "uniqueItems"},
      {Schema(R"({"not": {"type": "null"}})"), "not"},
      {Schema(R"({"type": "integer", "minimum": 5, "maximum": 4})"), "minimum"},
      {Schema(R"({"type": "string", "format": "nonsense"})"), "nonsense"},
      {Schema(R"({"type": "string", "pattern": "("})"), "regex"},
      {Schema(R"({"$ref": "#/$defs/nowhere"})"), "nowhere"},
      {Schema(R"({"type": "array", "uniqueItems": true, "x-guidance": {"lenient": true}})"),
       "uniqueItems"},
      {Schema(Repeat("[", 1000)), "not valid JSON"},
      {Schema(Nested(200)), "not valid JSON"},
      {Regex("("), "regex"},
      {Regex("a(?=b)"), "look"},
      {{.kind = GrammarKind::kChoice, .text = "[]"}, "at least one text"},
      {{.kind = GrammarKind::kChoice, .text = "[1]"}, "array of strings"},
      {{.kind = GrammarKind::kChoice, .text = "\"a\""}, "array of strings"},
      {Lark("start: nowhere"), "nowhere"},
      {Lark("start: \"a"), ""},
      {Lark(""), ""},
      {Lark("start: " + Repeat("(", 30'000) + "\"a\"" + Repeat(")", 30'000)), ""},
      {Schema(std::string(kMaxGrammarBytes + 1, ' ')), "at most"},
  }));
  const auto compiled = ByteLevel().vocabulary->Compile(source);
  INFO(source.text.substr(0, 100));
  INFO(compiled.status().ToString());
  REQUIRE(compiled.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(compiled.status().message());
  CHECK(!message.empty());
  CHECK_THAT(message, ContainsSubstring(reason));
  CHECK_THAT(message, !ContainsSubstring("backtrace"));
}

TEST_CASE("External references in a schema are never fetched") {
  const TempDir dir;
  dir.Write("other.json", R"({"type": "null"})");
  const std::string path = dir.File("other.json");
  const std::string where = GENERATE_COPY("file://" + path, path, std::string("other.json"),
                                          std::string("http://127.0.0.1:9/other.json"));
  const auto compiled =
      ByteLevel().vocabulary->Compile(Schema(fmt::format(R"({{"$ref": "{}"}})", where)));
  INFO(where);
  CHECK(compiled.status().code() == absl::StatusCode::kInvalidArgument);
}

// Consumes random tokens for as long as the grammar allows.
void Follow(const Grammar& grammar, int n_tokens) {
  const auto matcher = grammar.NewMatcher().value();
  std::mt19937 random(1);
  Mask mask{.words = std::vector<uint32_t>(ByteLevel().vocabulary->n_mask_words())};
  for (int i = 0; i < n_tokens && matcher->Mask(mask.words).ok(); ++i) {
    const std::vector<int32_t> ids = mask.Ids(false);
    if (ids.empty() || !matcher->Consume(std::span(&ids[random() % ids.size()], 1)).ok()) return;
  }
}

TEST_CASE("Deep and large grammars are compiled or refused, even on a small stack") {
  const std::string text = GENERATE(
      Nested(60), Nested(100), Chain(7'000), Properties(2'000, true), Properties(2'000, false),
      std::string(R"({"type":"string","pattern":"^((a{1000}){1000}){1000}$"})"),
      Repeat(R"({"anyOf":[{"type":"null"},)", 60) + "{}" + Repeat("]}", 60),
      Repeat(R"({"items":)", 120) + "{}" + Repeat("}", 120),
      fmt::format(R"({{"type":"string","pattern":"{}"}})", Repeat("(a|b)?", 500)),
      std::string(R"({"type":"string","maxLength":100000})"),
      std::string(R"({"type":"array","minItems":100000,"maxItems":1000000})"));
  struct Task {
    const std::string& text;
    absl::Status status;
  } task{.text = text};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* argument) -> void* {
                auto* const task = static_cast<Task*>(argument);
                const auto grammar = ByteLevel().vocabulary->Compile(Schema(task->text));
                task->status = grammar.status();
                // Masks are computed on the caller's stack, so follow the grammar here.
                if (grammar.ok()) Follow(**grammar, 300);
                return nullptr;
              },
              &task) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  INFO(text.substr(0, 60) << ": " << task.status.ToString());
  CHECK((task.status.ok() || absl::IsInvalidArgument(task.status)));
}

TEST_CASE("A text that the vocabulary cannot spell is refused at its first token") {
  TokenTable table;
  table.n_logits = 4;
  table.offsets = {0};
  for (const char* token : {"<eos>", "a", "b"}) {
    table.kinds +=
        static_cast<char>(table.kinds.empty() ? SC_GRAMMAR_TOKEN_SPECIAL : SC_GRAMMAR_TOKEN_TEXT);
    table.bytes += token;
    table.offsets.push_back(static_cast<uint32_t>(table.bytes.size()));
  }
  table.eos_ids = {0};
  const auto vocabulary = GrammarVocabulary::Make(table).value();
  CHECK(vocabulary->Compile(Regex("[ab]+")).ok());
  CHECK(absl::IsInvalidArgument(vocabulary->Compile(Regex("c")).status()));

  const auto matcher = vocabulary->Compile(Regex("ac")).value()->NewMatcher().value();
  const int32_t a = 1;
  REQUIRE(matcher->Consume(std::span(&a, 1)).ok());
  std::vector<uint32_t> words(1);
  CHECK(absl::IsResourceExhausted(matcher->Mask(words).status()));
}

TEST_CASE("Invalid token tables are refused") {
  TokenTable table{.kinds = "\1", .offsets = {0, 5}, .bytes = "abc", .eos_ids = {}, .n_logits = 1};
  CHECK(absl::IsInvalidArgument(GrammarVocabulary::Make(table).status()));
  table.offsets = {0, 3};
  CHECK(GrammarVocabulary::Make(table).ok());
  table.eos_ids = {1};
  CHECK(absl::IsInvalidArgument(GrammarVocabulary::Make(table).status()));
  table.eos_ids = {};
  table.offsets = {0};
  CHECK(absl::IsInvalidArgument(GrammarVocabulary::Make(table).status()));
  table = {.n_logits = 0};
  CHECK(absl::IsInvalidArgument(GrammarVocabulary::Make(table).status()));
}

TEST_CASE("A token of 2000 spaces does no harm") {
  TokenTable table{.kinds = {'\1', '\1'}, .offsets = {0, 1, 2001}, .n_logits = 2};
  table.bytes = "a" + std::string(2000, ' ');
  const auto vocabulary = GrammarVocabulary::Make(table).value();
  const auto matcher = vocabulary->Compile(Regex("[a ]{3}")).value()->NewMatcher().value();
  std::vector<uint32_t> words(1);
  REQUIRE(matcher->Mask(words).ok());
  CHECK(words[0] == 1);
}

}  // namespace
}  // namespace stagecoach::text
