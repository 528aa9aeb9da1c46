// What a request about a kept stream says: which one, and from where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/access/caller.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// Text with %XX in place of some characters; what is not such a place stays as it is.
std::string PercentDecoded(std::string_view text);

// In whose name HTTP's streams of a tenant are kept.
std::string StreamOwner(const Caller& caller);

// The request's id, of a stream's as it is in its chunks, "chatcmpl-…"; percent-encoded.
std::string StreamId(std::string_view name);

// The tokens that the client has: Last-Event-ID, as a browser's EventSource sends when it connects
// again, else `from`, else none. INVALID_ARGUMENT.
absl::StatusOr<uint64_t> ReadFrom(const HttpRequest& request);

}  // namespace stagecoach::router::http
