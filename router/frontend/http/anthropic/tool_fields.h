// Reads the tools of Anthropic's /v1/messages.
#pragma once

#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// Reads tools and tool_choice. Errors are in fields.status(). The contents of a tool are checked
// when the request is built.
void ReadAnthropicTools(JsonFields& fields, ApiRequest& request);

}  // namespace stagecoach::router::http
