// Text that is held back while it could be the beginning of a marker.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stagecoach::router {

// Bytes at the end of `text` that `marker` could go on from; all but the whole marker.
size_t OpenBytes(std::string_view text, std::string_view marker);

}  // namespace stagecoach::router
