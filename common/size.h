// Byte counts as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach {

// "1073741824", "512MiB", "4GB", "1.5GiB"; K, M, G, T alone are powers of 1024. INVALID_ARGUMENT
// otherwise.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// "1.5 GiB"
std::string FormatBytes(uint64_t bytes);

}  // namespace stagecoach
