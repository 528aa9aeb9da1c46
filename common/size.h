// Byte counts in the form that people write and read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach {

// Parses "1073741824", "512MiB", "4GB" or "1.5GiB". K, M, G and T alone are powers of 1024.
// INVALID_ARGUMENT otherwise.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// Returns "1.5 GiB", for example.
std::string FormatBytes(uint64_t bytes);

}  // namespace stagecoach
