// A grammar that lets a model do nothing but call tools.
#pragma once

#include <span>
#include <string>

#include "common/text/tokenizer.h"
#include "router/text/tool_family.h"
#include "router/text/tool_spec.h"

namespace stagecoach::router {

// Lark, for calls of `tools` as the family spells them: one, or with `parallel` one after another.
// Arguments are objects of a tool's schema, as far as it can be followed; with strict in full, or
// the grammar will not compile. REQUIRES: at least one tool.
std::string ToolGrammar(ToolFamily family, std::span<const ToolSpec> tools, bool parallel,
                        const text::Tokenizer& tokenizer);

}  // namespace stagecoach::router
