#include "router/frontend/http/output_parts.h"

namespace stagecoach::router::http {

std::vector<OutputPiece> OutputParts::Add(const v1::GenerateResponse& message) {
  if (message.has_prompt()) {
    n_prompt_tokens_ = static_cast<uint32_t>(message.prompt().token_ids_size());
  }
  if (message.has_usage()) usage_ = message.usage();
  n_output_tokens_ += static_cast<uint32_t>(message.token_ids_size());
  n_reasoning_tokens_ += message.reasoning_tokens();
  if (message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    finish_reason_ = message.finish_reason();
    stop_reason_ = message.stop_reason();
  }
  std::vector<OutputPiece> pieces;
  AddText(PartKind::kReasoning, message.reasoning(), pieces);
  AddText(PartKind::kText, message.text(), pieces);
  for (const v1::ToolCallDelta& delta : message.tool_calls()) AddCall(delta, pieces);
  return pieces;
}

void OutputParts::AddText(PartKind kind, const std::string& text,
                          std::vector<OutputPiece>& pieces) {
  if (text.empty()) return;
  const bool begins = parts_.empty() || parts_.back().kind != kind;
  if (begins) parts_.push_back({.kind = kind, .text = "", .call_id = "", .name = ""});
  pieces.push_back(MakePiece(begins, text));
}

void OutputParts::AddCall(const v1::ToolCallDelta& delta, std::vector<OutputPiece>& pieces) {
  const bool begins =
      parts_.empty() || parts_.back().kind != PartKind::kToolCall || call_index_ != delta.index();
  if (begins) {
    parts_.push_back(
        {.kind = PartKind::kToolCall, .text = "", .call_id = delta.id(), .name = delta.name()});
    call_index_ = delta.index();
  } else if (delta.arguments().empty()) {
    return;
  }
  pieces.push_back(MakePiece(begins, delta.arguments()));
}

OutputPiece OutputParts::MakePiece(bool begins, const std::string& text) {
  if (keep_text_) parts_.back().text += text;
  return {.part = parts_.size() - 1, .begins = begins, .text = text};
}

}  // namespace stagecoach::router::http
