#include "router/text/tool_grammar.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"
#include "router/text/client_json.h"
#include "router/text/value_grammar.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

constexpr std::string_view kMistralId = "/[A-Za-z0-9]{9}/";  // in Lark

std::string Arguments(const ToolSpec& tool) {
  // The client's JSON was already read within the limit, so no limit here.
  json::object schema(ClientJsonMemory(/*max_bytes=*/SIZE_MAX));
  if (tool.parameters.empty()) {
    schema["additionalProperties"] = false;
  } else {
    schema = json::parse(tool.parameters, schema.storage()).as_object();
  }
  if (!schema.contains("type")) schema["type"] = "object";
  return JsonLark(std::move(schema), tool.strict.value());
}

// The beginning of an object with `name`, up to its arguments under `key`. Split into small
// literals if another alternative may also begin with an object: one long literal would exclude the
// other one from its first quote on.
std::string ObjectHead(ToolFamily family, const std::string& name, const char* key) {
  if (family != ToolFamily::kJson) {
    return QuotedLark(fmt::format(R"({{"name": {}, "{}": )", QuotedLark(name), key));
  }
  std::string pieces;
  for (const std::string& piece :
       {std::string("{"), QuotedLark("name"), std::string(": "), QuotedLark(name),
        std::string(", "), QuotedLark(key), std::string(": ")}) {
    pieces += QuotedLark(piece) + " ";
  }
  return pieces;
}

// What stands around the arguments of one tool's call, and around all calls, in Lark.
struct CallForm {
  std::string head, tail;
  bool is_json = true;  // the arguments are one JSON object
  std::string begin, separator, end;
  std::string more_rules = {};
};

// Lark for texts that may have special tokens in them.
class Speller {
 public:
  explicit Speller(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string operator()(std::string_view text) const { return SpelledLark(text, tokenizer_); }
  bool IsSpecial(std::string_view mark) const { return (*this)(mark).starts_with("<["); }

 private:
  const text::Tokenizer& tokenizer_;
};

// Messages that may come before a call: their rule is `thoughts`.
std::string HarmonyThoughts(const Speller& spelled) {
  constexpr std::string_view kEnd = "<|end|>";
  const bool is_special = spelled.IsSpecial(kEnd);
  return fmt::format("thoughts: thought*\nthought: {} {} {} text {} {}\n{}: /(?s:.*)/\n",
                     spelled("<|channel|>"), R"(("analysis" | "commentary"))",
                     spelled("<|message|>"), is_special ? spelled(kEnd) : "",
                     spelled("<|start|>assistant"),
                     is_special ? "text" : fmt::format("text[suffix={}]", QuotedLark(kEnd)));
}

CallForm FormOf(ToolFamily family, const std::string& name, const Speller& spelled) {
  const auto json_call = [&](const char* key) { return ObjectHead(family, name, key); };
  const std::string close = QuotedLark("}");
  switch (family) {
    case ToolFamily::kMistral:
      // Small 3.1 and models before it may write an id.
      return {.head = json_call("arguments"),
              .tail = fmt::format("({} {} {})? {}", QuotedLark(R"(, "id": ")"), kMistralId,
                                  QuotedLark("\""), close),
              .begin = spelled("[TOOL_CALLS]") + " \" \"? \"[\"",
              .separator = QuotedLark(", "),
              .end = QuotedLark("]")};
    case ToolFamily::kMistralArgs:
      // Mistral Small 3.2 writes an id.
      return {.head = fmt::format("{} ({} {})? {}", spelled("[TOOL_CALLS]" + name),
                                  spelled("[CALL_ID]"), kMistralId, spelled("[ARGS]"))};
    case ToolFamily::kHermes:
      return {.head = spelled("<tool_call>\n") + " " + json_call("arguments"),
              .tail = spelled("}\n</tool_call>"),
              .separator = QuotedLark("\n")};
    case ToolFamily::kJson:
      return {.head = json_call("parameters"), .tail = close, .separator = QuotedLark("; ")};
    case ToolFamily::kPythonic:
      return {.head = QuotedLark(name + "("),
              .tail = QuotedLark(")"),
              .is_json = false,
              .begin = QuotedLark("["),
              .separator = QuotedLark(", "),
              .end = QuotedLark("]")};
    case ToolFamily::kQwenXml:
      return {.head = spelled("<tool_call>\n<function=" + name + ">\n"),
              .tail = spelled("</function>\n</tool_call>"),
              .is_json = false,
              .separator = QuotedLark("\n")};
    case ToolFamily::kGlm:
      return {.head = spelled("<tool_call>" + name) + " \"\\n\"?",
              .tail = spelled("</tool_call>"),
              .is_json = false,
              .separator = "\"\\n\"?"};
    case ToolFamily::kSeed:
      return {.head = spelled("<seed:tool_call>\n<function=" + name + ">\n"),
              .tail = spelled("</function>\n</seed:tool_call>"),
              .is_json = false,
              .separator = QuotedLark("\n")};
    case ToolFamily::kMiniMax:
      return {.head = spelled("<invoke name=\"" + name + "\">\n"),
              .tail = spelled("</invoke>\n"),
              .is_json = false,
              .begin = spelled("<minimax:tool_call>\n"),
              .end = spelled("</minimax:tool_call>")};
    case ToolFamily::kDeepSeek:
      return {.head = spelled("<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>"),
              .tail = spelled("<｜tool▁call▁end｜>"),
              .begin = spelled("<｜tool▁calls▁begin｜>"),
              .end = spelled("<｜tool▁calls▁end｜>")};
    case ToolFamily::kDeepSeekFenced:
      return {.head = spelled("<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n"),
              .tail = spelled("\n```<｜tool▁call▁end｜>"),
              .begin = spelled("<｜tool▁calls▁begin｜>"),
              .separator = QuotedLark("\n"),
              .end = spelled("<｜tool▁calls▁end｜>")};
    case ToolFamily::kKimi:
      return {.head = spelled("<|tool_call_begin|>functions." + name + ":") + " /[0-9]{1,4}/ " +
                      spelled("<|tool_call_argument_begin|>"),
              .tail = spelled("<|tool_call_end|>"),
              .begin = spelled("<|tool_calls_section_begin|>"),
              .end = spelled("<|tool_calls_section_end|>")};
    case ToolFamily::kNemotron:
      return {.head = json_call("arguments"),
              .tail = close,
              .begin = spelled("<TOOLCALL>["),
              .separator = QuotedLark(", "),
              .end = spelled("]</TOOLCALL>")};
    case ToolFamily::kGemma:
      return {.head = spelled("<|tool_call>call:" + name + "{"),
              .tail = spelled("}<tool_call|>"),
              .is_json = false};
    case ToolFamily::kHarmony:
      return {.head = spelled("<|channel|>commentary to=functions." + name + " ") + " (" +
                      spelled("<|constrain|>") + ")? " + spelled("json<|message|>"),
              .begin = "thoughts",
              .more_rules = HarmonyThoughts(spelled)};
  }
  return {};
}

}  // namespace

std::string ArgumentsGrammar(const ToolSpec& tool) {
  return fmt::format("start: {}\n", Arguments(tool));
}

absl::StatusOr<std::string> ToolGrammar(ToolFamily family, std::span<const ToolSpec> tools,
                                        bool parallel, const text::Tokenizer& tokenizer) {
  SC_CHECK(!tools.empty());
  const Speller spelled(tokenizer);
  CallForm form;
  std::string calls, rules(kAnyKeyRule);
  for (size_t i = 0; i < tools.size(); ++i) {
    form = FormOf(family, tools[i].name, spelled);
    calls += fmt::format("{}call_{}", i > 0 ? " | " : "", i);
    rules += fmt::format("call_{0}: {1} args_{0} {2}\n", i, form.head, form.tail);
    const std::string name = fmt::format("args_{}", i);
    if (form.is_json) {
      rules += fmt::format("{}: {}\n", name, Arguments(tools[i]));
      continue;
    }
    SC_ASSIGN_OR_RETURN(const std::string of_tool,
                        ArgumentRules(family, tools[i], name, tokenizer));
    rules += of_tool;
  }
  const bool one = !parallel || family == ToolFamily::kHarmony;
  return fmt::format("start: {} call {} {}\ncall: {}\n{}{}", form.begin,
                     one ? "" : fmt::format("({} call)*", form.separator), form.end, calls, rules,
                     form.more_rules);
}

}  // namespace stagecoach::router
