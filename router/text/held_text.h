// Helps to hold back text that may be the beginning of a marker.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stagecoach::router {

// The number of bytes at the end of `text` that form a proper prefix of `marker`; the longest one.
size_t OpenBytes(std::string_view text, std::string_view marker);

}  // namespace stagecoach::router
