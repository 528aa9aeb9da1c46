// Reads the tools of OpenAI's /v1/responses.
#pragma once

#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// Reads tools, tool_choice and parallel_tool_calls. Errors are in fields.status(). The contents of
// a tool are checked when the request is built.
void ReadResponseTools(JsonFields& fields, ApiRequest& request);

}  // namespace stagecoach::router::http
