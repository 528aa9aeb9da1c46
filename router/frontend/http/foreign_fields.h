// Fields of other servers' APIs that would change the answer. None is left out of account: what has
// an exact equivalent is read by the other readers, the rest is refused here.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

enum class Endpoint : uint8_t { kCompletions, kChat };

// Refuses, with the field's name and what to use in its place. Values that ask for nothing, such as
// `"mirostat": 0`, are as good as absent.
void RefuseForeign(JsonFields& fields, Endpoint endpoint);
// The same for a message of a chat.
void RefuseForeignOfMessage(JsonFields& fields);

// Refuses members of `object` that are not among `known` and ask for something.
void RefuseUnknown(JsonFields& fields, const boost::json::object& object,
                   std::initializer_list<std::string_view> known);

}  // namespace stagecoach::router::http
