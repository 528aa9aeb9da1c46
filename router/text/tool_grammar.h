// A grammar that lets a model do nothing but call tools.
#pragma once

#include <span>
#include <string>

#include "common/text/tokenizer.h"
#include "router/text/tool_family.h"
#include "router/text/tool_spec.h"

namespace stagecoach::router {

// Lark, for calls of `tools` as the family spells them: one, or with `parallel` one after another.
// Arguments are objects of a tool's schema: in full, or the grammar will not compile, where the
// tool is strict. REQUIRES: at least one tool, each with `strict`.
std::string ToolGrammar(ToolFamily family, std::span<const ToolSpec> tools, bool parallel,
                        const text::Tokenizer& tokenizer);

// Lark, for the arguments of one tool alone.
std::string ArgumentsGrammar(const ToolSpec& tool);

}  // namespace stagecoach::router
