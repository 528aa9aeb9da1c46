// Server-sent events as bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// The head of an event stream response.
HttpResponse EventStreamHead();

// The last events of a stream that fails after it has begun.
std::string ErrorEvents(const absl::Status& status);

// Gives the last of `events` an id; a client that lost its connection sends it back. Does nothing
// if there are no events.
void SetLastEventId(std::string& events, uint64_t id);

}  // namespace stagecoach::router::http
