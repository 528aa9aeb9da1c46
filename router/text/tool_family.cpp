#include "router/text/tool_family.h"

#include <optional>
#include <span>

namespace stagecoach::router {
namespace {

constexpr std::string_view kSpecials[] = {"[TOOL_CALLS]",
                                          "[ARGS]",
                                          "[CALL_ID]",
                                          "[THINK]",
                                          "[/THINK]",
                                          "<tool_call>",
                                          "</tool_call>",
                                          "<|python_tag|>",
                                          "<|python_start|>",
                                          "<|python_end|>",
                                          "<think>",
                                          "</think>",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "<minimax:tool_call>",
                                          "</minimax:tool_call>",
                                          "<｜tool▁calls▁begin｜>",
                                          "<｜tool▁calls▁end｜>",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁call▁end｜>",
                                          "<｜tool▁sep｜>",
                                          "<|tool_calls_section_begin|>",
                                          "<|tool_calls_section_end|>",
                                          "<|tool_call_begin|>",
                                          "<|tool_call_argument_begin|>",
                                          "<|tool_call_end|>",
                                          "<TOOLCALL>",
                                          "</TOOLCALL>",
                                          "<seed:tool_call>",
                                          "</seed:tool_call>",
                                          "<seed:think>",
                                          "</seed:think>",
                                          "<|tool_call>",
                                          "<tool_call|>",
                                          "<|\"|>",
                                          "<|channel>",
                                          "<channel|>"};
// Other families have some of these for other purposes.
constexpr std::string_view kHarmonySpecials[] = {"<|start|>",     "<|channel|>", "<|message|>",
                                                 "<|constrain|>", "<|end|>",     "<|call|>",
                                                 "<|return|>"};

// What only the templates of one family contain; the first one that is found decides.
struct Sign {
  std::string_view text;
  ToolFamily family;
};
constexpr Sign kSigns[] = {
    {"<|channel|>", ToolFamily::kHarmony},   {"<minimax:tool_call>", ToolFamily::kMiniMax},
    {"<seed:tool_call>", ToolFamily::kSeed}, {"<|tool_calls_section_begin|>", ToolFamily::kKimi},
    {"<TOOLCALL>", ToolFamily::kNemotron},   {"<|tool_call>", ToolFamily::kGemma},
    {"<arg_key>", ToolFamily::kGlm},         {"<parameter=", ToolFamily::kQwenXml},
    {"<tool_call>", ToolFamily::kHermes},    {"func_name1(", ToolFamily::kPythonic}};

}  // namespace

ToolFamily DetectToolFamily(const text::ChatTemplate& chat_template) {
  if (chat_template.Mentions("[TOOL_CALLS]")) {
    return chat_template.Mentions("[ARGS]") ? ToolFamily::kMistralArgs : ToolFamily::kMistral;
  }
  if (chat_template.Mentions("<｜tool▁calls▁begin｜>")) {
    return chat_template.Mentions("```json") ? ToolFamily::kDeepSeekFenced : ToolFamily::kDeepSeek;
  }
  for (const auto& [text, family] : kSigns) {
    if (chat_template.Mentions(text)) return family;
  }
  return ToolFamily::kJson;
}

std::vector<int32_t> SpelledSpecials(ToolFamily family, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const std::span<const std::string_view> tokens =
      family == ToolFamily::kHarmony ? std::span<const std::string_view>(kHarmonySpecials)
                                     : std::span<const std::string_view>(kSpecials);
  for (const std::string_view token : tokens) {
    const std::optional<int32_t> id = tokenizer.TokenId(token);
    if (id && tokenizer.IsSpecial(*id)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace stagecoach::router
