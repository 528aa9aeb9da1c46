// Blanks as JSON has them.
#pragma once

#include <cstddef>
#include <string_view>

namespace stagecoach::router {

inline constexpr std::string_view kBlanks = " \t\r\n";

inline bool IsBlank(char c) { return kBlanks.find(c) != std::string_view::npos; }

// `text` without blanks at either end.
inline std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace stagecoach::router
