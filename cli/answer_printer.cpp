#include "cli/answer_printer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/style.h"

namespace stagecoach::cli {

AnswerPrinter::Look AnswerPrinter::LookOf(bool on_terminal, bool plain) {
  const bool has_style = HasStyle(STDOUT_FILENO) && !plain;
  return {
      .shows_reasoning = on_terminal, .has_style = has_style, .renders = on_terminal && has_style};
}

void AnswerPrinter::Show(const v1::GenerateResponse& piece) {
  if (look_.shows_reasoning && !piece.reasoning().empty()) {
    if (!std::exchange(is_reasoning_, true)) {
      fmt::print("{}", look_.has_style ? "\x1b[2m" : "[thinking]\n");
    }
    fmt::print("{}", piece.reasoning());
  }
  if (!piece.text().empty()) {
    EndReasoning();
    fmt::print("{}", look_.renders ? markdown_.Push(piece.text()) : piece.text());
  }
  std::fflush(stdout);
}

void AnswerPrinter::End() {
  EndReasoning();
  fmt::print("{}\n", look_.renders ? markdown_.End() : "");
  std::fflush(stdout);
}

void AnswerPrinter::EndReasoning() {
  if (std::exchange(is_reasoning_, false)) {
    fmt::print("{}\n\n", look_.has_style ? "\x1b[0m" : "\n[answer]");
  }
}

}  // namespace stagecoach::cli
