// Blanks as JSON has them.
#pragma once

#include <string_view>

namespace stagecoach::router {

inline constexpr std::string_view kBlanks = " \t\r\n";

inline bool IsBlank(char c) { return kBlanks.find(c) != std::string_view::npos; }

}  // namespace stagecoach::router
