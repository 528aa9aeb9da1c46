// Reads a small file that a flag names.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::router {

// INVALID_ARGUMENT, with `flag` and the path, if the file cannot be read or is larger than 1 MiB.
inline absl::StatusOr<std::string> ReadText(std::string_view flag, const std::string& path) {
  constexpr size_t kMaxBytes = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(fmt::format("{} {}: cannot be read", flag, path));
  }
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(fmt::format("{} {}: larger than 1 MiB", flag, path));
  }
  return text;
}

}  // namespace stagecoach::router
