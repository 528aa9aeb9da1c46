#include "router/frontend/http/stream_request.h"

#include <fmt/format.h>

#include <charconv>

namespace stagecoach::router::http {
namespace {

int HexDigit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// The value of the first field `name`; empty if absent.
std::string_view QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(field.size() + 1, query.size()));
    const size_t equals = field.find('=');
    if (field.substr(0, equals) == name) {
      return equals == std::string_view::npos ? std::string_view() : field.substr(equals + 1);
    }
  }
  return {};
}

}  // namespace

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

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
