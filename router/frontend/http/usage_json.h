// Where the prompt tokens of a request came from, in the form of OpenAI's usage.
#pragma once

#include <boost/json/object.hpp>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Adds the cached and stored tokens of `from` to those of `sum`.
void AddCached(const v1::Usage& from, v1::Usage& sum);

// {"cached_tokens": N} and, if some of them were no more on the device, the field
// "stored_tokens": {"host": N, "disk": N, "store": N}.
boost::json::object CachedJson(const v1::Usage& usage);

}  // namespace stagecoach::router::http
