// The one line by which a program says that it is up: "listening grpc=127.0.0.1:4711".
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::launch {

// The value of "key=value" among the words of `line`; INTERNAL when it is not there.
absl::StatusOr<std::string> Field(std::string_view line, std::string_view key);

}  // namespace stagecoach::launch
