// Shows on a terminal that a server of this command's own is starting. Prints nothing if standard
// error is not a terminal.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::cli {

class LoadingLine {
 public:
  explicit LoadingLine(const std::string& model);
  ~LoadingLine();  // erases the line
  LoadingLine(const LoadingLine&) = delete;
  LoadingLine& operator=(const LoadingLine&) = delete;

  bool on_terminal() const { return on_terminal_; }
  // Takes a line of the server's log, which may tell how much of the model is loaded. Thread-safe.
  void Follow(std::string_view log_line) const;

 private:
  const bool on_terminal_;
};

}  // namespace stagecoach::cli
