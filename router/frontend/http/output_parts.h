// The parts of an answer in the order in which the model wrote them: for APIs whose answers are
// lists of blocks or items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

enum class PartKind : uint8_t { kReasoning, kText, kToolCall };

struct OutputPart {
  PartKind kind = PartKind::kText;
  std::string text;     // of a tool call: its arguments
  std::string call_id;  // of a tool call
  std::string name;     // of a tool call
};

// A new piece of a part's text.
struct OutputPiece {
  size_t part = 0;      // index into parts()
  bool begins = false;  // the first piece of its part
  std::string text;
};

// Takes the messages of the one choice of a request. One thread at a time.
class OutputParts {
 public:
  // `keep_text`: parts() has the text of each part, and not only its kind, id and name.
  explicit OutputParts(bool keep_text) : keep_text_(keep_text) {}

  // Returns the pieces of `message`, in order.
  std::vector<OutputPiece> Add(const v1::GenerateResponse& message);

  const std::vector<OutputPart>& parts() const { return parts_; }
  uint32_t n_prompt_tokens() const { return n_prompt_tokens_; }
  const v1::Usage& usage() const { return usage_; }  // empty before the last message
  uint32_t n_output_tokens() const { return n_output_tokens_; }
  uint32_t n_reasoning_tokens() const { return n_reasoning_tokens_; }  // part of n_output_tokens
  // FINISH_REASON_UNSPECIFIED before the last message.
  v1::FinishReason finish_reason() const { return finish_reason_; }
  const std::string& stop_reason() const { return stop_reason_; }

 private:
  void AddText(PartKind kind, const std::string& text, std::vector<OutputPiece>& pieces);
  void AddCall(const v1::ToolCallDelta& delta, std::vector<OutputPiece>& pieces);
  OutputPiece MakePiece(bool begins, const std::string& text);

  const bool keep_text_;
  std::vector<OutputPart> parts_;
  uint32_t call_index_ = 0;  // of the last part, if it is a tool call
  uint32_t n_prompt_tokens_ = 0;
  v1::Usage usage_;
  uint32_t n_output_tokens_ = 0;
  uint32_t n_reasoning_tokens_ = 0;
  v1::FinishReason finish_reason_ = v1::FINISH_REASON_UNSPECIFIED;
  std::string stop_reason_;
};

}  // namespace stagecoach::router::http
