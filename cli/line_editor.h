// Reads lines that a user types or pastes at a terminal, with editing and history; plain lines if
// standard input is not a terminal.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace stagecoach::cli {

class LineEditor {
 public:
  struct Line {
    std::string text;          // without the final line break; line breaks in pasted text are kept
    bool interrupted = false;  // Interrupt() came instead; `text` is empty
  };

  virtual ~LineEditor() = default;

  // Returns nullopt at the end of the input.
  virtual std::optional<Line> Read() = 0;
  // Makes Read() discard the line being typed. Thread-safe; no effect on plain lines.
  virtual void Interrupt() = 0;
};

// `prompt` is shown before each line. `history`: file with earlier lines, to which new ones are
// added; empty: there is none. If it cannot be written, the lines are forgotten at the end.
std::unique_ptr<LineEditor> MakeTerminalEditor(const std::string& prompt,
                                               const std::string& history);
std::unique_ptr<LineEditor> MakePlainReader();

}  // namespace stagecoach::cli
