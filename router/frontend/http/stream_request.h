// Parses requests about kept streams: the stream's id and the start position.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// The request id of a percent-encoded stream name, which is the id in the stream's chunks:
// "chatcmpl-…".
std::string StreamId(std::string_view name);

// The number of tokens that the client has: Last-Event-ID, which a browser's EventSource sends when
// it reconnects, else `from`, else 0. INVALID_ARGUMENT.
absl::StatusOr<uint64_t> ReadFrom(const HttpRequest& request);

}  // namespace stagecoach::router::http
