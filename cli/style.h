// Whether output may have colours and bold text.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace stagecoach::cli {

// See no-color.org. False if NO_COLOR is set and not empty, or if TERM is "dumb".
inline bool HasStyle(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

}  // namespace stagecoach::cli
