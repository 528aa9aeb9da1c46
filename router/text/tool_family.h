// The formats in which model families write tool calls.
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
  // <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> for each call; also Qwen
  kHermes,
  // {"name": "f", "parameters": {}}; ... : Llama 3, and templates without another format
  kJson,
};

// Detects the family from the way the template writes the calls of earlier answers.
ToolFamily DetectToolFamily(const text::ChatTemplate& chat_template);

// Makes an id that the family's templates accept when the call is sent back. It depends only on
// `key`.
std::string MakeToolCallId(ToolFamily family, std::string_view key);
// `id` itself if templates accept it; otherwise an id that depends only on `id`.
std::string ToolCallIdForTemplate(ToolFamily family, std::string_view id);

// Special tokens that mark tool calls and reasoning.
std::vector<int32_t> SpelledSpecials(const text::Tokenizer& tokenizer);

}  // namespace stagecoach::router
