// Fields of other servers' APIs that would change the answer. None is silently ignored: other
// readers handle fields with an exact equivalent; this one rejects the rest.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

enum class Endpoint : uint8_t { kCompletions, kChat };

// Rejects these fields, with the field's name and its replacement. A value that requests nothing,
// such as `"mirostat": 0`, counts as absent.
void RefuseForeign(JsonFields& fields, Endpoint endpoint);
// The same for one message of a chat.
void RefuseForeignOfMessage(JsonFields& fields);

// Rejects members of `object` that are not in `known` and request something.
void RefuseUnknown(JsonFields& fields, const boost::json::object& object,
                   std::initializer_list<std::string_view> known);

}  // namespace stagecoach::router::http
