#include "router/text/held_text.h"

#include <algorithm>

namespace stagecoach::router {

size_t OpenBytes(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace stagecoach::router
