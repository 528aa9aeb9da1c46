// How a family of models spells calls of tools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace stagecoach::router {

enum class ToolFamily : uint8_t {
  kMistral,      // [TOOL_CALLS] [{"name": "f", "arguments": {}}, ...]
  kMistralArgs,  // [TOOL_CALLS]f[ARGS]{} for each call
  kHermes,  // <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> for each call; Qwen too
  kJson,    // {"name": "f", "parameters": {}}; ... : Llama 3, and templates that say nothing
};

// Told by what the template writes for the calls of earlier answers.
ToolFamily DetectToolFamily(const text::ChatTemplate& chat_template);

// Ids that the family's templates accept when the calls come back to them.
std::string MakeToolCallId(ToolFamily family);
// `id` itself where templates accept it, else one that is always the same for `id`.
std::string ToolCallIdForTemplate(ToolFamily family, std::string_view id);

// Special tokens that are part of how calls and thinking are spelled.
std::vector<int32_t> SpelledSpecials(const text::Tokenizer& tokenizer);

}  // namespace stagecoach::router
