// The fields that the bodies of /v1/completions and /v1/chat/completions have in common.
#pragma once

#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// All but n's relatives with another meaning in each API: logprobs, and max_tokens' default.
// Problems are in fields.status().
v1::SamplingParams ReadSampling(JsonFields& fields, ApiRequest& request);

// stream, stream_options, return_token_ids.
void ReadStreaming(JsonFields& fields, ApiRequest& request);

}  // namespace stagecoach::router::http
