// The secret that the programs of one pipeline share.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach {

// Makes a new secret: 64 hexadecimal digits from the kernel's random bytes.
std::string MakeSecret();

// Returns the first line of the file without its line end. INVALID_ARGUMENT unless the line has 32
// to 256 printable characters without spaces; the message says how to make a secret.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

// Compares in constant time: for a given length the time does not depend on how many characters
// match.
bool SameSecret(std::string_view secret, std::string_view given);

}  // namespace stagecoach
