// Converts the C interface's status code and error buffer to absl::Status.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"

namespace stagecoach::text {

// Room for an error message. Longer messages are truncated.
using ErrorBuffer = std::array<char, 1024>;

inline absl::Status AbiStatus(int32_t code, const ErrorBuffer& error) {
  if (code == 0) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(code), error.data());
}

inline bool IsTooSmall(int32_t code) {
  return static_cast<absl::StatusCode>(code) == absl::StatusCode::kOutOfRange;
}

}  // namespace stagecoach::text
