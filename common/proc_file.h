// Reads values from the small text files in /proc and /sys. A value that cannot be read is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stagecoach {

// Returns the number after `name` in a file of "name value" lines.
std::optional<uint64_t> ReadField(const std::string& path, std::string_view name);

// Returns the number at the start of a file. "max" (no limit) counts as absent.
std::optional<uint64_t> ReadNumber(const std::string& path);

std::optional<std::string> ReadFirstLine(const std::string& path);

}  // namespace stagecoach
