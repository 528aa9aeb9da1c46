// Grammars for arguments that are not written as one JSON object.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"
#include "router/text/tool_family.h"
#include "router/text/tool_spec.h"

namespace stagecoach::router {

// Lark strings have the syntax of JSON strings.
std::string QuotedLark(std::string_view text);

// `text` in Lark. Text cannot match special tokens, so these are referred to.
std::string SpelledLark(std::string_view text, const text::Tokenizer& tokenizer);

// `schema`, a JSON Schema, in Lark. Spaces as models have learnt them. Overrides any x-guidance
// options of the client. `strict`: unsupported keywords do not compile.
std::string JsonLark(boost::json::object schema, bool strict);

// The terminal for names of arguments that no schema lists, and its rule.
inline constexpr std::string_view kAnyKey = "ANY_KEY";
inline constexpr std::string_view kAnyKeyRule = "ANY_KEY: /[A-Za-z_][A-Za-z0-9_]{0,63}/\n";

// Rules for the arguments of `tool` as the family writes them: `name` is the rule of all
// arguments, and begins the names of the others. Listed properties come in the schema's order
// (kGemma: in the order of their names), and others only if none are listed. They use kAnyKey.
// INVALID_ARGUMENT if the tool is strict, and its schema has a keyword that these rules cannot
// enforce. REQUIRES: kPythonic, kGemma, or a family with tags; the tool has `strict` set.
absl::StatusOr<std::string> ArgumentRules(ToolFamily family, const ToolSpec& tool,
                                          const std::string& name,
                                          const text::Tokenizer& tokenizer);

}  // namespace stagecoach::router
