// Reads answers in the Harmony format of gpt-oss: messages in channels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "router/text/tool_calls.h"

namespace stagecoach::router {

// Behind it, a grammar for the answer begins. common/text/rust/src/grammar/source.rs knows it.
inline constexpr std::string_view kHarmonyFinal = "<|channel|>final<|message|>";

// The tokens that end an answer, whatever the checkpoint's files say.
inline constexpr std::string_view kHarmonyEnds[] = {"<|call|>", "<|return|>"};

// Separates reasoning (the channel analysis), content (commentary and final) and calls (messages to
// functions.NAME) in a text that may be cut anywhere; the result does not depend on where. A line
// break separates messages of the same kind. Text that is no message is content. Dropped are only
// heads of messages. One thread at a time.
class HarmonyReader {
 public:
  struct Options {
    bool separate_reasoning = true;  // false: the reasoning is content, with its marks
    std::optional<ToolCallOptions> tools = std::nullopt;  // absent: calls are content
    // The end of the prompt, behind "<|start|>assistant", which the text continues.
    std::string_view begun = {};
  };
  struct Output {
    std::string reasoning;
    ToolCallParser::Output rest;
  };

  // The ids of the calls depend only on `id_key` and the calls' order.
  HarmonyReader(Options options, std::string id_key);

  void Push(std::string_view text, Output* out);
  void End(Output* out);  // no text follows

  // Inside a message of reasoning.
  bool is_reasoning() const { return state_ == State::kReasoning; }
  uint32_t n_calls() const { return n_calls_; }
  // The only allowed call is complete; ignore further text.
  bool done() const;

 private:
  enum class State : uint8_t {
    kHead,       // before <|message|>
    kReasoning,  // inside a message
    kContent,    // inside a message, or outside all
    kCall,       // inside a message
    kBehind,     // behind a message
  };

  bool Step(Output* out);
  bool Head(Output* out);
  bool Behind();
  bool Message(Output* out);
  void Begin(std::string_view head, Output* out);
  void BeginPlain();
  void Pass(std::string_view text, Output* out);
  void EndMessage(Output* out);

  const bool separate_reasoning_;
  const std::optional<ToolCallOptions> tools_;
  const std::string id_key_;
  State state_ = State::kHead;
  std::string held_;          // text not processed yet
  bool is_started_ = false;   // the head follows <|start|>
  bool keeps_marks_ = false;  // the message is reasoning that is content
  bool has_text_ = false;     // the message has text
  bool has_reasoning_ = false;
  bool has_content_ = false;
  bool call_ended_ = false;
  uint32_t n_calls_ = 0;
};

}  // namespace stagecoach::router
