#include "cli/launch/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace stagecoach::launch {

absl::StatusOr<std::string> Field(std::string_view line, std::string_view key) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=') {
      return std::string(word.substr(key.size() + 1));
    }
  }
  return absl::InternalError(
      fmt::format("a program announced itself without '{}=': {}", key, line));
}

}  // namespace stagecoach::launch
