// The formats in which model families write tool calls.
#pragma once

#include <cstdint>
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
  kPythonic,  // [f(a=1), g()] : Llama 4, and Llama 3.2 and Gemma 3 with templates that ask for it
  // <tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call> for each
  // call: Qwen3-Coder, Qwen3.5
  kQwenXml,
  // <tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call> for each call:
  // GLM-4.5 and later
  kGlm,
  // <minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n
  // </minimax:tool_call> around all calls: MiniMax-M2
  kMiniMax,
  // <seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call> for
  // each call: Seed-OSS
  kSeed,
  // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>,
  // the first and the last mark around all calls: DeepSeek V3.1
  kDeepSeek,
  // The same with "function<｜tool▁sep｜>f\n```json\n{}\n```" in each call: DeepSeek V3 and R1
  kDeepSeekFenced,
  // <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}
  // <|tool_call_end|><|tool_calls_section_end|>, the first and the last mark around all calls, the
  // number counts the conversation's calls: Kimi K2
  kKimi,
  // <TOOLCALL>[{"name": "f", "arguments": {}}, ...]</TOOLCALL> : Nemotron Nano 2
  kNemotron,
  kGemma,  // <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|> for each call: Gemma 4
  // Messages in channels, a call addressed to its function: <|channel|>commentary to=functions.f
  // <|constrain|>json<|message|>{}<|call|> : gpt-oss
  kHarmony,
};
inline constexpr int kToolFamilies = 15;

// Detects the family from the way the template writes the calls of earlier answers.
ToolFamily DetectToolFamily(const text::ChatTemplate& chat_template);

// Special tokens with which the family marks tool calls and reasoning.
std::vector<int32_t> SpelledSpecials(ToolFamily family, const text::Tokenizer& tokenizer);

}  // namespace stagecoach::router
