#include "router/text/tool_family.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <random>
#include <span>

namespace stagecoach::router {
namespace {

constexpr std::string_view kAlphanumerics =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kMistralIdSize = 9;  // Mistral's templates raise an exception for other sizes
constexpr size_t kIdSize = 24;

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
    {"<|channel|>", ToolFamily::kHarmony}, {"<minimax:tool_call>", ToolFamily::kMiniMax},
    {"<|tool_call>", ToolFamily::kGemma},  {"<arg_key>", ToolFamily::kGlm},
    {"<parameter=", ToolFamily::kQwenXml}, {"<tool_call>", ToolFamily::kHermes},
    {"func_name1(", ToolFamily::kPythonic}};

bool IsMistral(ToolFamily family) {
  return family == ToolFamily::kMistral || family == ToolFamily::kMistralArgs;
}

// n characters that depend only on `key`.
std::string AlphanumericsOf(std::string_view key, size_t n) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::mt19937_64 generator(hash);
  std::string text;
  for (size_t i = 0; i < n; ++i) text += kAlphanumerics[generator() % kAlphanumerics.size()];
  return text;
}

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

std::string MakeToolCallId(ToolFamily family, std::string_view key) {
  return IsMistral(family) ? AlphanumericsOf(key, kMistralIdSize)
                           : "call_" + AlphanumericsOf(key, kIdSize);
}

std::string ToolCallIdForTemplate(ToolFamily family, std::string_view id) {
  const bool accepted =
      !IsMistral(family) ||
      (id.size() == kMistralIdSize &&
       std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isalnum(c) != 0; }));
  if (accepted) return std::string(id);
  return AlphanumericsOf(id, kMistralIdSize);
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
