// Grammars and vocabularies that are refused, at once or while a matcher follows a grammar.
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/grammar.h"
#include "common/text/grammar_test_support.h"

namespace stagecoach::text {
namespace {

using Catch::Matchers::ContainsSubstring;

// Follows `source` with the longest tokens, which take the most work. Returns how many it took.
int FollowToItsEnd(const GrammarFixture& fixture, const GrammarSource& source, int max_tokens,
                   absl::Status& end) {
  const auto matcher = fixture.Matcher(source);
  std::vector<uint32_t> words(fixture.vocabulary->n_mask_words());
  for (int n = 0; n < max_tokens; ++n) {
    if (end = matcher->Mask(words).status(); !end.ok()) return n;
    const std::vector<int32_t> ids = Mask{.words = words}.Ids(false);
    const int32_t longest = *std::max_element(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return fixture.tokenizer->TokenBytes(a).size() < fixture.tokenizer->TokenBytes(b).size();
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

}  // namespace
}  // namespace stagecoach::text
