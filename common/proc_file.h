// Values out of the small text files of /proc and /sys. What cannot be read is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stagecoach {

// The number after `name` in a file of "name value" lines.
std::optional<uint64_t> ReadField(const std::string& path, std::string_view name);

// A file that begins with a number; "max" (no limit) is none.
std::optional<uint64_t> ReadNumber(const std::string& path);

std::optional<std::string> ReadFirstLine(const std::string& path);

}  // namespace stagecoach
