// Lines that a person types or pastes at a terminal, with editing and history; plain lines where
// standard input is none.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace stagecoach::cli {

class LineEditor {
 public:
  struct Line {
    std::string text;          // without its end; a paste's line breaks are in it
    bool interrupted = false;  // Interrupt() came instead; `text` is empty
  };

  virtual ~LineEditor() = default;

  // Nothing: the end of the input.
  virtual std::optional<Line> Read() = 0;
  // Has Read() give up the line that is being typed. Thread-safe; no effect on plain lines.
  virtual void Interrupt() = 0;
};

// `prompt` is shown before each line.
std::unique_ptr<LineEditor> MakeTerminalEditor(const std::string& prompt);
std::unique_ptr<LineEditor> MakePlainReader();

}  // namespace stagecoach::cli
