// Splits a byte stream into UTF-8 characters.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace stagecoach::text {

// U+FFFD, the replacement for invalid bytes.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Moves the decided part of `pending` to the end of `out`: whole characters unchanged, and one
// U+FFFD for each maximal part of a character that cannot be completed (the practice of the Unicode
// standard, section 3.9, which Rust and Python follow). At most 3 bytes of an unfinished character
// stay.
void TakeUtf8(std::string& pending, std::string& out);

bool IsUtf8(std::string_view text);

// Position of the first byte that is not part of a valid character. Empty if the text is valid.
std::optional<size_t> FirstBrokenByte(std::string_view text);

// INVALID_ARGUMENT "FIELD: is not valid UTF-8 at byte N", where FIELD is `field`.
absl::Status CheckUtf8(std::string_view field, std::string_view text);

}  // namespace stagecoach::text
