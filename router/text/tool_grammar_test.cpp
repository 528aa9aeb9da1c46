#include "router/text/tool_grammar.h"

#include <boost/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/text/token_stream.h"
#include "router/text/testing/test_model.h"
#include "router/text/tool_calls.h"

namespace stagecoach::router {
namespace {

const std::vector<ToolSpec> kTools = {{.name = "weather",
                                       .parameters = R"({"type": "object", "required": ["city"],
       "additionalProperties": false, "properties": {"city": {"$ref": "#/$defs/city"},
       "days": {"type": "integer", "minimum": 1, "maximum": 9}},
       "$defs": {"city": {"enum": ["Åre", "a \"b\""]}}})",
                                       .strict = true},
                                      {.name = "time-now", .strict = true}};

// The text that a model with random weights writes under the grammar.
std::string Write(const ServedModel& model, const text::GrammarSource& source, uint32_t seed) {
  const auto grammar = (*model.grammars)->Get(source);
  INFO(source.text << grammar.status().ToString());
  REQUIRE(grammar.ok());
  const auto matcher = (*grammar)->NewMatcher().value();
  text::TokenStream stream(model.tokenizer, true, SpelledSpecials(*model.tokenizer));
  std::vector<uint32_t> words((*model.grammars)->vocabulary()->n_mask_words());
  std::mt19937 random(seed);
  std::string written;
  for (;;) {
    const bool may_end = matcher->Mask(words).value();
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < model.spec.vocab_size; ++id) {
      const bool is_eos = id == model.defaults.eos_ids[0];
      if (!is_eos && (words[id / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    }
    if (ids.empty() || (may_end && random() % 2 == 0)) break;
    const int32_t id = ids[random() % ids.size()];
    written += stream.Push(id);
    REQUIRE(matcher->Consume({&id, 1}).ok());
  }
  return written + stream.Flush();
}

std::string Write(const ServedModel& model, const std::string& lark, uint32_t seed) {
  return Write(model, text::GrammarSource{.kind = text::GrammarKind::kLark, .text = lark}, seed);
}

ToolCallParser::Output Parse(ToolFamily family, const std::string& text) {
  ToolCallParser parser({.family = family, .names = {"weather", "time-now"}}, "key");
  ToolCallParser::Output out;
  parser.Push(text, &out);
  parser.End(&out);
  return out;
}

TEST_CASE("text that the tool grammar allows parses as tool calls") {
  const ServedModel model = TestModel();
  for (const ToolFamily family :
       {ToolFamily::kMistral, ToolFamily::kMistralArgs, ToolFamily::kHermes, ToolFamily::kJson}) {
    const std::string many = ToolGrammar(family, kTools, true, *model.tokenizer);
    const std::string one = ToolGrammar(family, kTools, false, *model.tokenizer);
    std::set<size_t> counts;
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const std::string text = Write(model, many, seed);
      INFO(text);
      const ToolCallParser::Output out = Parse(family, text);
      CHECK(out.content.empty());
      REQUIRE(!out.calls.empty());
      counts.insert(out.calls.size());
      for (const ToolCallPiece& call : out.calls) {
        const auto arguments = boost::json::parse(call.arguments).as_object();
        if (call.name == "time-now") {
          CHECK(arguments.empty());
          continue;
        }
        CHECK(call.name == "weather");
        const std::string city(arguments.at("city").as_string());
        CHECK((city == "Åre" || city == "a \"b\""));
        if (arguments.contains("days")) CHECK(arguments.at("days").as_int64() >= 1);
        CHECK(arguments.size() <= 2);
      }
      CHECK(Parse(family, Write(model, one, seed)).calls.size() == 1);
    }
    CHECK(counts.size() > 1);
  }
}

TEST_CASE("with a response format, an answer is either tool calls or in that format") {
  const ServedModel model = TestModel();
  using Kind = text::GrammarKind;
  const text::GrammarSource forms[] = {
      {.kind = Kind::kJsonSchema,
       .text = R"({"type": "object", "required": ["answer"], "additionalProperties": false,
                   "properties": {"answer": {"enum": ["yes", "no"]}}})"},
      // Begins like a call.
      {.kind = Kind::kJsonSchema,
       .text = R"({"type": "object", "required": ["name"], "additionalProperties": false,
                   "properties": {"name": {"enum": ["yes", "weathered"]}}})"},
      {.kind = Kind::kJsonSchema,
       .text = R"({"type": "object", "required": ["answer"], "additionalProperties": false,
                   "properties": {"answer": {"type": "integer"}}})",
       .any_whitespace = true},
      {.kind = Kind::kRegex, .text = "[a-c]{2,4}"},
      {.kind = Kind::kChoice, .text = R"(["yes", "no"])"},
      {.kind = Kind::kLark, .text = "start: call\ncall: \"<\" /[xy]{1,3}/ \">\"\n"}};
  for (const ToolFamily family :
       {ToolFamily::kMistral, ToolFamily::kMistralArgs, ToolFamily::kHermes, ToolFamily::kJson}) {
    const std::string calls = ToolGrammar(family, kTools, true, *model.tokenizer);
    for (text::GrammarSource form : forms) {
      const text::GrammarSource both = text::CallsOrForm(calls, form);
      size_t n_calls = 0, n_forms = 0;
      for (uint32_t seed = 0; seed < 60; ++seed) {
        const std::string text = Write(model, both, seed);
        INFO(form.text << "\n" << text);
        const ToolCallParser::Output out = Parse(family, text);
        if (!out.calls.empty()) {
          ++n_calls;
          for (const ToolCallPiece& call : out.calls) {
            CHECK(boost::json::parse(call.arguments).is_object());
          }
          continue;
        }
        ++n_forms;
        CHECK(out.content == text);
        if (form.kind == Kind::kJsonSchema) {
          CHECK(boost::json::parse(text).as_object().size() == 1);
        } else {
          CHECK(text.size() <= 5);
        }
      }
      CHECK(n_calls > 0);
      CHECK(n_forms > 0);
    }
  }
}

TEST_CASE("a schema is enforced as far as possible, and in full if strict") {
  const ServedModel model = TestModel();
  std::vector<ToolSpec> tools = {
      {.name = "f",
       .parameters = R"({"properties": {"a": {"type": "array", "uniqueItems": true,
         "items": {"const": 1}, "maxItems": 2}}, "additionalProperties": false})",
       .strict = false}};
  const std::string text =
      Write(model, ToolGrammar(ToolFamily::kJson, tools, false, *model.tokenizer), 1);
  CHECK(Parse(ToolFamily::kJson, text).calls.empty());  // "f" is not one of its tools
  CHECK(boost::json::parse(text).at("name").as_string() == "f");
  CHECK(boost::json::parse(text).at("parameters").is_object());
  tools[0].strict = true;
  const auto refused =
      (*model.grammars)
          ->Get({.kind = text::GrammarKind::kLark,
                 .text = ToolGrammar(ToolFamily::kJson, tools, false, *model.tokenizer)});
  CHECK(absl::IsInvalidArgument(refused.status()));
  CHECK(refused.status().message().find("uniqueItems") != std::string::npos);
}

TEST_CASE("for an invalid tool, the error gives its place") {
  const auto refusal = [](std::string_view text) {
    const auto tools = ParseTools(text);
    REQUIRE(absl::IsInvalidArgument(tools.status()));
    return std::string(tools.status().message());
  };
  CHECK(refusal("{").starts_with("tools: "));
  CHECK(refusal("{}").starts_with("tools: "));
  CHECK(refusal("[1]").starts_with("tools[0]: "));
  CHECK(refusal(R"([{"type": "retrieval"}])").starts_with("tools[0].type: "));
  CHECK(refusal(R"([{"type": "function"}])").starts_with("tools[0].function: "));
  CHECK(refusal(R"([{"type": "function", "function": {"name": "a b"}}])")
            .starts_with("tools[0].function.name: "));
  CHECK(refusal(R"([{"type": "function", "function": {"name": "f", "parameters": 1}}])")
            .starts_with("tools[0].function.parameters: "));
  const std::string f = R"({"type": "function", "function": {"name": "f", "strict": true}})";
  CHECK(refusal("[" + f + "," + f + "]").starts_with("tools[1].function.name: "));
  const auto tools = ParseTools("[" + f + "]");
  REQUIRE(tools.ok());
  CHECK((*tools)[0].name == "f");
  CHECK((*tools)[0].strict);
  CHECK((*tools)[0].parameters.empty());
}

}  // namespace
}  // namespace stagecoach::router
