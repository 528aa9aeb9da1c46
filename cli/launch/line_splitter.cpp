#include "cli/launch/line_splitter.h"

#include <utility>

namespace stagecoach::launch {

LineSplitter::LineSplitter(std::function<void(std::string_view)> on_line)
    : on_line_(std::move(on_line)) {}

void LineSplitter::Push(std::string_view bytes) {
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos;) {
    partial_.append(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
    on_line_(std::exchange(partial_, {}));
  }
  partial_.append(bytes);
  if (partial_.size() > kMaxLineBytes) Flush();
}

void LineSplitter::Flush() {
  if (!partial_.empty()) on_line_(std::exchange(partial_, {}));
}

}  // namespace stagecoach::launch
