// Names that clients give to their requests.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"

namespace stagecoach::router {

inline constexpr size_t kMaxRequestIdBytes = 256;

// Fit for a log's line, a header field and a key of what is kept: printable ASCII without spaces.
inline bool IsFitRequestId(std::string_view id) {
  return id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// INVALID_ARGUMENT. An empty one is none: the router makes it.
inline absl::Status CheckRequestId(std::string_view id) {
  if (IsFitRequestId(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("request_id: is not printable ASCII without spaces, of {} bytes at most",
                  kMaxRequestIdBytes));
}

}  // namespace stagecoach::router
