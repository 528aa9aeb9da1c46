// Checks request ids that clients choose.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"

namespace stagecoach::router {

inline constexpr size_t kMaxRequestIdBytes = 256;

// Whether the id is safe in a log line, a header field and a key of the stream store: printable
// ASCII without spaces.
inline bool IsFitRequestId(std::string_view id) {
  return id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// INVALID_ARGUMENT. An empty id is valid: the router then makes one.
inline absl::Status CheckRequestId(std::string_view id) {
  if (IsFitRequestId(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "request_id: must be printable ASCII without spaces, at most {} bytes", kMaxRequestIdBytes));
}

}  // namespace stagecoach::router
