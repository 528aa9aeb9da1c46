// Server-sent events as bytes.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// The head of an event stream response.
HttpResponse EventStreamHead();

// One event with a name: its data has the name as its type, too.
std::string NamedEvent(std::string_view name, const boost::json::object& data);

// The last events of a stream that fails after it has begun.
std::string ErrorEvents(const absl::Status& status);

// Gives the last of `events` an id; a client that lost its connection sends it back. Does nothing
// if there are no events.
void SetLastEventId(std::string& events, uint64_t id);

}  // namespace stagecoach::router::http
