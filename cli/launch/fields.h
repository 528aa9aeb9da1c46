// Reads the line in which a program reports that it is ready: "listening grpc=127.0.0.1:4711".
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::launch {

// The value of "key=value" among the words of `line`; INTERNAL if the key is missing.
absl::StatusOr<std::string> Field(std::string_view line, std::string_view key);

}  // namespace stagecoach::launch
