// A grammar that allows only tool calls.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"
#include "router/text/tool_family.h"
#include "router/text/tool_spec.h"

namespace stagecoach::router {

// Returns Lark for calls of `tools` in the family's format: one call, or with `parallel` one or
// more; kHarmony has one call in an answer, behind messages of reasoning. Arguments match the
// tool's schema. For a strict tool, they match it in full, or else the grammar does not compile, or
// this returns INVALID_ARGUMENT with the place in the schema. REQUIRES: at least one tool, each
// with `strict` set.
absl::StatusOr<std::string> ToolGrammar(ToolFamily family, std::span<const ToolSpec> tools,
                                        bool parallel, const text::Tokenizer& tokenizer);

// Returns Lark for the arguments of one tool.
std::string ArgumentsGrammar(const ToolSpec& tool);

}  // namespace stagecoach::router
