// Cutting a stream of bytes into UTF-8 characters.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace stagecoach::text {

// U+FFFD, what stands for bytes that are no character.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Moves what is decided of `pending` to the end of `out`: whole characters as they are, and one
// U+FFFD for each maximal part of a character that cannot be completed (the practice of the Unicode
// standard, 3.9, which Rust and Python follow). At most 3 bytes of an open character stay.
void TakeUtf8(std::string& pending, std::string& out);

bool IsUtf8(std::string_view text);

// Where the first byte stands that is no part of a character; nothing: all are.
std::optional<size_t> FirstBrokenByte(std::string_view text);

// INVALID_ARGUMENT "field: is not valid UTF-8 at byte N".
absl::Status CheckUtf8(std::string_view field, std::string_view text);

}  // namespace stagecoach::text
