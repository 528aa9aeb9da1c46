// Server-sent events as bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// The head of a response that is a stream of events.
HttpResponse EventStreamHead();

// What ends a stream that has begun and failed.
std::string ErrorEvents(const absl::Status& status);

// Gives the last one of `events` an id, which a client that lost its connection sends back. Nothing
// for no events.
void SetLastEventId(std::string& events, uint64_t id);

}  // namespace stagecoach::router::http
