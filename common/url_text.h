// Parts of URLs.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach {

// Decodes %XX escapes; leaves invalid ones as they are.
std::string PercentDecoded(std::string_view text);

// The value of the first field `name` of a query such as "a=1&b=2", still encoded; empty if absent.
std::string_view QueryValue(std::string_view query, std::string_view name);

}  // namespace stagecoach
