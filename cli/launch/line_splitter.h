// Splits a byte stream into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace stagecoach::launch {

class LineSplitter {
 public:
  // Longer lines are passed on in pieces.
  static constexpr size_t kMaxLineBytes = 1 << 20;

  // `on_line` gets each line without its '\n'.
  explicit LineSplitter(std::function<void(std::string_view)> on_line);

  void Push(std::string_view bytes);
  // Call at the end of the stream: passes on the last line if it has no line feed.
  void Flush();

 private:
  const std::function<void(std::string_view)> on_line_;
  std::string partial_;
};

}  // namespace stagecoach::launch
