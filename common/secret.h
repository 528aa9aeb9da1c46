// What programs of one pipeline know and nobody else does.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach {

// A new one: 64 hexadecimal digits from the kernel's random bytes.
std::string MakeSecret();

// The file's one line, without its end. INVALID_ARGUMENT, which says how to make one, unless it has
// 32 to 256 printable characters without spaces.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

// Takes as long for any `given` of a length: the time does not tell how much of it is right.
bool SameSecret(std::string_view secret, std::string_view given);

}  // namespace stagecoach
