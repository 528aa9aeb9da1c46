#include "router/text/tool_grammar.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <optional>

#include "common/check.h"
#include "router/text/client_json.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

// Lark strings have the syntax of JSON strings.
std::string Quoted(std::string_view text) {
  return json::serialize(json::string(text.data(), text.size()));
}

// A marker in Lark. If the marker is a special token, text cannot match it, so refer to the token.
std::string Marker(const text::Tokenizer& tokenizer, std::string_view marker) {
  const std::optional<int32_t> id = tokenizer.TokenId(marker);
  return id && tokenizer.IsSpecial(*id) ? fmt::format("<[{}]>", *id) : Quoted(marker);
}

std::string Arguments(const ToolSpec& tool) {
  // The client's JSON was already read within the limit, so no limit here.
  json::object schema(ClientJsonMemory(/*max_bytes=*/SIZE_MAX));
  if (tool.parameters.empty()) {
    schema["additionalProperties"] = false;
  } else {
    schema = json::parse(tool.parameters, schema.storage()).as_object();
  }
  if (!schema.contains("type")) schema["type"] = "object";
  // Spaces as models have learnt them. Overrides any x-guidance options of the client.
  schema["x-guidance"] = {{"item_separator", ", "},
                          {"key_separator", ": "},
                          {"whitespace_flexible", false},
                          {"lenient", !tool.strict.value()}};
  return "%json " + json::serialize(schema);
}

// The beginning of an object with `name`, up to its arguments under `key`. Split into small
// literals if another alternative may also begin with an object: one long literal would exclude the
// other one from its first quote on.
std::string ObjectHead(ToolFamily family, const std::string& name, const char* key) {
  if (family != ToolFamily::kJson) {
    return Quoted(fmt::format(R"({{"name": {}, "{}": )", Quoted(name), key));
  }
  std::string pieces;
  for (const std::string& piece :
       {std::string("{"), Quoted("name"), std::string(": "), Quoted(name), std::string(", "),
        Quoted(key), std::string(": ")}) {
    pieces += Quoted(piece) + " ";
  }
  return pieces;
}

}  // namespace

std::string ArgumentsGrammar(const ToolSpec& tool) {
  return fmt::format("start: {}\n", Arguments(tool));
}

std::string ToolGrammar(ToolFamily family, std::span<const ToolSpec> tools, bool parallel,
                        const text::Tokenizer& tokenizer) {
  SC_CHECK(!tools.empty());
  const bool args = family == ToolFamily::kMistralArgs;
  const char* const key = family == ToolFamily::kJson ? "parameters" : "arguments";
  std::string calls, rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    calls += fmt::format("{}call_{}", i > 0 ? " | " : "", i);
    const std::string head =
        args ? fmt::format("{} {}", Quoted(tools[i].name), Marker(tokenizer, "[ARGS]"))
             : ObjectHead(family, tools[i].name, key);
    rules += fmt::format("call_{0}: {1} args_{0}{2}\nargs_{0}: {3}\n", i, head,
                         args ? "" : " \"}\"", Arguments(tools[i]));
  }
  const auto sequence = [&](const std::string& separator) {
    return parallel ? fmt::format("call ({} call)*", separator) : std::string("call");
  };
  std::string start;
  switch (family) {
    case ToolFamily::kMistral:
      start = fmt::format("{} \" \"? \"[\" {} \"]\"", Marker(tokenizer, "[TOOL_CALLS]"),
                          sequence("\", \""));
      break;
    case ToolFamily::kMistralArgs:
      start = fmt::format("({} call){}", Marker(tokenizer, "[TOOL_CALLS]"), parallel ? "+" : "");
      break;
    case ToolFamily::kHermes:
      start = fmt::format("tagged{}", parallel ? " (\"\\n\" tagged)*" : "");
      rules += fmt::format("tagged: {} \"\\n\" call \"\\n\" {}\n", Marker(tokenizer, "<tool_call>"),
                           Marker(tokenizer, "</tool_call>"));
      break;
    case ToolFamily::kJson:
      start = sequence("\"; \"");
      break;
  }
  return fmt::format("start: {}\ncall: {}\n{}", start, calls, rules);
}

}  // namespace stagecoach::router
