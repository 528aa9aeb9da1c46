// What is left of a key's rate, as header fields of OpenAI's and Anthropic's APIs.
#pragma once

#include <chrono>

#include "router/access/rate_limit.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// In Anthropic's form, the time at which all of the rate is left again; in OpenAI's, how long that
// takes.
HeaderFields RateFields(
    const RateLimit& rate, ErrorForm form,
    RateLimit::Clock::time_point now = RateLimit::Clock::now(),
    std::chrono::system_clock::time_point wall_now = std::chrono::system_clock::now());

}  // namespace stagecoach::router::http
