// Separates a model's reasoning from its answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stagecoach::router {

inline constexpr std::string_view kBeginOfReasoning = "<think>";
inline constexpr std::string_view kEndOfReasoning = "</think>";

// Finds "<think>...</think>" at the beginning of a text that may be cut anywhere. Blanks around the
// reasoning belong to neither part. One thread at a time.
class ReasoningSplitter {
 public:
  // `open`: the prompt ended with "<think>", so the text begins inside.
  explicit ReasoningSplitter(bool open) : state_(open ? State::kThinking : State::kBeginning) {}

  struct Output {
    std::string reasoning;
    std::string content;
  };
  void Push(std::string_view text, Output* out);
  void End(Output* out);  // no text follows

  // After "<think>" and before "</think>".
  bool is_open() const { return state_ == State::kThinking; }

 private:
  enum class State : uint8_t { kBeginning, kThinking, kBehind, kContent };

  bool Step(Output* out);

  State state_;
  std::string held_;
  bool has_reasoning_ = false;
};

}  // namespace stagecoach::router
