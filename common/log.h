// Log set-up; after it, call spdlog::info("...", ...) and its like directly.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace stagecoach {

// Lines go to standard error as "2026-01-31 12:00:00.123 I program: message". Level: trace, debug,
// info, warning, error.
absl::Status InitLog(const std::string& program, const std::string& level);

}  // namespace stagecoach
