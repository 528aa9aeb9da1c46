#include "router/frontend/http/stream_request.h"

#include <fmt/format.h>

#include <charconv>

#include "common/url_text.h"

namespace stagecoach::router::http {

std::string StreamId(std::string_view name) {
  std::string id = PercentDecoded(name);
  for (const std::string_view prefix : {"chatcmpl-", "cmpl-"}) {
    if (id.starts_with(prefix)) return id.substr(prefix.size());
  }
  return id;
}

absl::StatusOr<uint64_t> ReadFrom(const HttpRequest& request) {
  const std::string_view from =
      request.last_event_id.empty() ? QueryValue(request.query, "from") : request.last_event_id;
  uint64_t n_tokens = 0;
  const auto [end, error] = std::from_chars(from.begin(), from.end(), n_tokens);
  if (from.empty()) return 0;
  if (error != std::errc() || end != from.end()) {
    return absl::InvalidArgumentError(
        fmt::format("from: '{}' is not a number of tokens", from.substr(0, 64)));
  }
  return n_tokens;
}

}  // namespace stagecoach::router::http
