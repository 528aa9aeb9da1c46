// Prints an answer to standard output as it arrives.
#pragma once

#include <string>

#include "cli/markdown.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

class AnswerPrinter {
 public:
  struct Look {
    bool shows_reasoning = false;  // before the answer
    bool has_style = false;        // reasoning is dim
    bool renders = false;          // Markdown is shown instead of its marks
  };
  // How answers look on standard output: plain unless it is a terminal. `plain`: also there.
  static Look LookOf(bool on_terminal, bool plain);

  explicit AnswerPrinter(Look look) : look_(look) {}

  void Show(const v1::GenerateResponse& piece);
  // Prints what was held back, and a line break.
  void End();

 private:
  void EndReasoning();

  const Look look_;
  Markdown markdown_;
  bool is_reasoning_ = false;
};

}  // namespace stagecoach::cli
