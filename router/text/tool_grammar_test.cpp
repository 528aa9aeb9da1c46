#include "router/text/tool_grammar.h"

#include <boost/json.hpp>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/text/token_stream.h"
#include "router/text/harmony.h"
#include "router/text/testing/test_model.h"
#include "router/text/tool_calls.h"

namespace stagecoach::router {
namespace {

const std::vector<ToolSpec> kTools = {{.name = "weather",
                                       .parameters = R"({"type": "object", "required": ["city"],
       "additionalProperties": false, "properties": {"city": {"$ref": "#/$defs/city"},
       "days": {"type": "integer", "minimum": 1, "maximum": 9},
       "on": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string",
       "maxLength": 3}, "maxItems": 2}, "name": {"type": "string", "minLength": 1, "maxLength": 3}},
       "$defs": {"city": {"enum": ["Åre", "a \"b\""]}}})",
                                       .strict = true},
                                      {.name = "time-now", .strict = true}};

// The text that a model with random weights writes under the grammar.
std::string Write(const ServedModel& model, const text::GrammarSource& source, uint32_t seed) {
  const auto grammar = (*model.grammars)->Get(source);
  INFO(source.text << grammar.status().ToString());
  REQUIRE(grammar.ok());
  const auto matcher = (*grammar)->NewMatcher().value();
  std::vector<int32_t> shown = SpelledSpecials(ToolFamily::kHermes, *model.tokenizer);
  const auto harmony = SpelledSpecials(ToolFamily::kHarmony, *model.tokenizer);
  shown.insert(shown.end(), harmony.begin(), harmony.end());
  text::TokenStream stream(model.tokenizer, true, shown);
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

constexpr ToolFamily kFamilies[] = {
    ToolFamily::kMistral, ToolFamily::kMistralArgs, ToolFamily::kHermes,
    ToolFamily::kJson,    ToolFamily::kPythonic,    ToolFamily::kQwenXml,
    ToolFamily::kGlm,     ToolFamily::kMiniMax,     ToolFamily::kDeepSeek,
    ToolFamily::kGemma,   ToolFamily::kHarmony,     ToolFamily::kDeepSeekFenced,
    ToolFamily::kKimi,    ToolFamily::kNemotron,    ToolFamily::kSeed};
static_assert(std::size(kFamilies) == kToolFamilies);

// A model with Harmony's marks as special tokens.
ServedModel HarmonyModel() {
  constexpr std::string_view kMarks[] = {"<|channel|>", "<|message|>", "<|constrain|>"};
  return TestModel(TestTokenizerWith(kMarks), /*eos=*/0);
}

ToolCallParser::Output Parse(ToolFamily family, const std::string& text) {
  const ToolCallOptions options{.family = family,
                                .tools = std::make_shared<ToolSchemaList>(ToolSchemaList{
                                    {"weather", kTools[0].parameters}, {"time-now", ""}})};
  if (family == ToolFamily::kHarmony) {
    HarmonyReader reader({.tools = options}, "key");
    HarmonyReader::Output out;
    reader.Push(text, &out);
    reader.End(&out);
    return out.rest;
  }
  ToolCallParser parser(options, "key");
  ToolCallParser::Output out;
  parser.Push(text, &out);
  parser.End(&out);
  return out;
}

TEST_CASE("text that the tool grammar allows parses as tool calls") {
  const ServedModel plain = TestModel(), harmony = HarmonyModel();
  for (const ToolFamily family : kFamilies) {
    INFO(int(family));
    const ServedModel& model = family == ToolFamily::kHarmony ? harmony : plain;
    const std::string many = ToolGrammar(family, kTools, true, *model.tokenizer).value();
    const std::string one = ToolGrammar(family, kTools, false, *model.tokenizer).value();
    std::set<size_t> counts;
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const std::string text = Write(model, many, seed);
      INFO(text);
      const ToolCallParser::Output out = Parse(family, text);
      // Harmony's grammar allows messages of text in front of a call.
      if (family != ToolFamily::kHarmony) CHECK(out.content.empty());
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
        if (arguments.contains("on")) CHECK(arguments.at("on").is_bool());
        if (arguments.contains("tags")) CHECK(arguments.at("tags").as_array().size() <= 2);
        if (arguments.contains("name")) CHECK(arguments.at("name").is_string());
        CHECK(arguments.size() <= 5);
      }
      CHECK(Parse(family, Write(model, one, seed)).calls.size() == 1);
    }
    CHECK((counts.size() > 1) == (family != ToolFamily::kHarmony));
  }
}

bool Allows(const ServedModel& model, const text::GrammarSource& source, std::string_view text) {
  const auto grammar = (*model.grammars)->Get(source);
  INFO(source.text << grammar.status().ToString());
  REQUIRE(grammar.ok());
  const auto matcher = (*grammar)->NewMatcher().value();
  const auto ids = model.tokenizer->Encode(text, false).value();
  std::vector<uint32_t> words((*model.grammars)->vocabulary()->n_mask_words());
  return matcher->Consume(ids).ok() && matcher->Mask(words).value();
}

bool Allows(const ServedModel& model, ToolFamily family, std::span<const ToolSpec> tools,
            std::string_view text) {
  const std::string lark = ToolGrammar(family, tools, true, *model.tokenizer).value();
  return Allows(model, text::GrammarSource{.kind = text::GrammarKind::kLark, .text = lark}, text);
}

TEST_CASE("a tool grammar allows calls as the family writes them, with any text in strings") {
  const ServedModel model = TestModel();
  const std::vector<ToolSpec> tools = {
      {.name = "f",
       .parameters = R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
         "m": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "o": {"type": "object",
         "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}, "required": ["b"]}},
         "required": ["s"]})",
       .strict = true},
      {.name = "free", .parameters = R"({"type": "object"})", .strict = true}};
  const auto allows = [&](ToolFamily family, std::string_view text) {
    return Allows(model, family, tools, text);
  };
  CHECK(allows(ToolFamily::kQwenXml,
               "<tool_call>\n<function=f>\n<parameter=s>\na\n<b>\n</parameter>\n<parameter=n>\n"
               "12\n</parameter>\n<parameter=m>\nnull\n</parameter>\n<parameter=o>\n{\"b\": "
               "true}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=free>\n"
               "<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"));
  CHECK_FALSE(allows(ToolFamily::kQwenXml,
                     "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n"
                     "x\n</parameter>\n</function>\n</tool_call>"));
  CHECK_FALSE(allows(ToolFamily::kQwenXml, "<tool_call>\n<function=f>\n</function>\n</tool_call>"));
  CHECK(allows(ToolFamily::kGlm,
               "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a < b</arg_value>\n</tool_call>"));
  CHECK(allows(ToolFamily::kGlm,
               "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value></tool_call><tool_call>free"
               "<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>"));
  CHECK(allows(ToolFamily::kSeed,
               "<seed:tool_call>\n<function=f>\n<parameter=s>a\nb</parameter>\n<parameter=n>1"
               "</parameter>\n</function>\n</seed:tool_call>"));
  CHECK(allows(ToolFamily::kMiniMax,
               "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">a\nb</parameter>\n"
               "</invoke>\n</minimax:tool_call>"));
  CHECK(allows(ToolFamily::kGemma,
               "<|tool_call>call:f{n:1,o:{a:<|\"|>x<|\"|>,b:true},s:<|\"|>y<|\"|>}<tool_call|>"
               "<|tool_call>call:free{x:[1,{y:<|\"|>z<|\"|>}]}<tool_call|>"));
  CHECK_FALSE(allows(ToolFamily::kGemma, "<|tool_call>call:f{o:{a:<|\"|>x<|\"|>}}<tool_call|>"));
  CHECK(allows(ToolFamily::kPythonic, "[f(s=\"x\", o={\"b\": true}), free(x=[1])]"));
  CHECK(allows(ToolFamily::kMistralArgs,
               "[TOOL_CALLS]f[ARGS]{\"s\": \"x\"}[TOOL_CALLS]free[CALL_ID]"
               "a1B2c3D4e[ARGS]{}"));
  CHECK(allows(
      ToolFamily::kMistral,
      "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}, \"id\": \"a1B2c3D4e\"}, "
      "{\"name\": \"free\", \"arguments\": {}}]"));
  CHECK(allows(ToolFamily::kKimi,
               "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:12"
               "<|tool_call_argument_begin|>{\"s\": \"x\"}<|tool_call_end|><|tool_call_begin|>"
               "functions.free:13<|tool_call_argument_begin|>{}<|tool_call_end|>"
               "<|tool_calls_section_end|>"));
  CHECK(allows(ToolFamily::kNemotron,
               "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}, {\"name\": \"free\", "
               "\"arguments\": {}}]</TOOLCALL>"));
  CHECK(Allows(HarmonyModel(), ToolFamily::kHarmony, tools,
               "<|channel|>analysis<|message|>so <b><|end|><|start|>assistant<|channel|>commentary "
               "to=functions.f <|constrain|>json<|message|>{\"s\": \"x\"}"));
}

TEST_CASE("a keyword that a family's form cannot enforce is refused for strict tools") {
  const ServedModel model = TestModel();
  std::vector<ToolSpec> tools = {
      {.name = "f",
       .parameters = R"({"properties": {"a/b": {"type": "string", "pattern": "^x$"}}})",
       .strict = true}};
  const auto refused = ToolGrammar(ToolFamily::kQwenXml, tools, true, *model.tokenizer);
  CHECK(refused.status().message() ==
        "tools.function.parameters: at #/properties/a~1b: the keyword \"pattern\" is not supported "
        "in the form in which this model writes calls");
  tools[0].strict = false;
  CHECK(ToolGrammar(ToolFamily::kQwenXml, tools, true, *model.tokenizer).ok());
  tools[0].strict = true;
  tools[0].parameters =
      R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a":
      {"$ref": "#/$defs/a"}}}}})";
  const auto nested = ToolGrammar(ToolFamily::kGemma, tools, true, *model.tokenizer);
  CHECK(std::string(nested.status().message()).ends_with("the schema is nested too deeply"));
}

TEST_CASE("Harmony's marks are special tokens, and an answer's form is in the last channel") {
  const ServedModel model = HarmonyModel();
  const std::string thought = "<|channel|>analysis<|message|>so<|end|><|start|>assistant";
  const std::string call = "<|channel|>commentary to=functions.time-now json<|message|>{}";
  CHECK(Allows(model, ToolFamily::kHarmony, kTools, thought + thought + call));
  const text::GrammarSource form{.kind = text::GrammarKind::kChoice,
                                 .text = R"(["yes", "no"])",
                                 .begins_after = std::string(kHarmonyFinal)};
  CHECK(Allows(model, form, thought + "<|channel|>final<|message|>yes"));
  CHECK_FALSE(Allows(model, form, "yes"));
  CHECK_FALSE(Allows(model, form, call));
  const text::GrammarSource both = text::CallsOrForm(
      ToolGrammar(ToolFamily::kHarmony, kTools, true, *model.tokenizer).value(), form);
  CHECK(Allows(model, both, thought + "<|channel|>final<|message|>no"));
  CHECK(Allows(model, both, thought + call));
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
  for (const ToolFamily family : kFamilies) {
    if (family == ToolFamily::kHarmony) continue;  // in channels: see below
    const std::string calls = ToolGrammar(family, kTools, true, *model.tokenizer).value();
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
      Write(model, ToolGrammar(ToolFamily::kJson, tools, false, *model.tokenizer).value(), 1);
  CHECK(Parse(ToolFamily::kJson, text).calls.empty());  // "f" is not one of its tools
  CHECK(boost::json::parse(text).at("name").as_string() == "f");
  CHECK(boost::json::parse(text).at("parameters").is_object());
  tools[0].strict = true;
  const auto refused =
      (*model.grammars)
          ->Get({.kind = text::GrammarKind::kLark,
                 .text = ToolGrammar(ToolFamily::kJson, tools, false, *model.tokenizer).value()});
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
