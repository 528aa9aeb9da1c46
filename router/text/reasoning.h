// Separates a model's reasoning from its answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stagecoach::router {

// What stands around reasoning.
struct ReasoningMarks {
  std::string_view begin, end;
  std::string_view calls = "";  // a mark of tool calls that ends reasoning without `end`; "": none
};
inline constexpr ReasoningMarks kThinkTags{"<think>", "</think>"},
    kKimiThinkTags{"<think>", "</think>", "<|tool_calls_section_begin|>"},
    kSeedThinkTags{"<seed:think>", "</seed:think>"},
    kThinkBrackets{"[THINK]", "[/THINK]"},               // Mistral
    kThoughtChannel{"<|channel>thought", "<channel|>"};  // Gemma 4

// Where a text begins, relative to its reasoning. The prompt may have opened or closed it.
enum class ReasoningPlace : uint8_t { kBefore, kInside, kBehind };

// Finds reasoning at the beginning of a text that may be cut anywhere. Blanks around the reasoning
// belong to neither part. One thread at a time.
class ReasoningSplitter {
 public:
  explicit ReasoningSplitter(ReasoningPlace place, ReasoningMarks marks = kThinkTags)
      : marks_(marks),
        is_behind_(place == ReasoningPlace::kBehind),
        state_(place == ReasoningPlace::kInside ? State::kThinking : State::kBeginning) {}

  struct Output {
    std::string reasoning;
    std::string content;
  };
  void Push(std::string_view text, Output* out);
  void End(Output* out);  // no text follows

  // Between the marks.
  bool is_open() const { return state_ == State::kThinking; }

 private:
  enum class State : uint8_t { kBeginning, kThinking, kBehind, kContent };

  bool Step(Output* out);

  const ReasoningMarks marks_;
  const bool is_behind_;  // blanks in front of the answer are not part of it
  State state_;
  std::string held_;
  bool has_reasoning_ = false;
};

}  // namespace stagecoach::router
