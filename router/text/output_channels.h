// Splits a choice's text into content, reasoning, tool calls, or the values of its JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "router/text/harmony.h"
#include "router/text/json_events.h"
#include "router/text/json_path.h"
#include "router/text/reasoning.h"
#include "router/text/tool_calls.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// How to split a request's answers; by default, everything is content.
struct OutputFormat {
  bool separate_reasoning = false;
  ReasoningPlace reasoning_place = ReasoningPlace::kBefore;  // of the end of the prompt
  ReasoningMarks reasoning_marks = kThinkTags;
  // Set for answers in the Harmony format: the end of the prompt, behind "<|start|>assistant".
  std::optional<std::string> harmony = std::nullopt;
  std::optional<ToolCallParser::Options> tools;
  std::optional<JsonPaths> json_events;
  JsonEventParser::Source json_source = JsonEventParser::Source::kPrompted;
  std::vector<int32_t> shown_specials;  // special tokens that mark the parts
};

// The parts of one choice. One thread at a time.
class OutputChannels {
 public:
  // `format` outlives this. The ids of tool calls depend only on `id_key` and the calls' order.
  OutputChannels(const OutputFormat* format, const std::string& id_key);

  // Adds the parts of the next text to `message`.
  void Push(std::string_view text, v1::GenerateResponse* message);
  // No text follows.
  void End(v1::GenerateResponse* message);

  // The text so far ends inside separated reasoning.
  bool is_reasoning() const {
    return harmony_ ? harmony_->is_reasoning() : reasoning_ && reasoning_->is_open();
  }
  bool called_tools() const {
    return harmony_ ? harmony_->n_calls() > 0 : tools_ && tools_->n_calls() > 0;
  }
  // The only allowed tool call is complete; ignore further text.
  bool done() const { return harmony_ ? harmony_->done() : tools_ && tools_->done(); }

 private:
  void AddHarmony(const HarmonyReader::Output& out, v1::GenerateResponse* message);
  void Add(const ToolCallParser::Output& out, v1::GenerateResponse* message);
  void PushContent(std::string_view text, bool at_end, v1::GenerateResponse* message);
  void AddContent(std::string_view text, v1::GenerateResponse* message);

  std::optional<HarmonyReader> harmony_;  // instead of the next two
  std::optional<ReasoningSplitter> reasoning_;
  std::optional<ToolCallParser> tools_;
  std::optional<JsonEventParser> json_;
};

}  // namespace stagecoach::router
