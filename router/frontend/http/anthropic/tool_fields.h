// Reads the tools of Anthropic's /v1/messages.
#pragma once

#include "router/frontend/http/anthropic/deferred_tools.h"
#include "router/frontend/http/api_request.h"
#include "router/frontend/http/json_fields.h"

namespace stagecoach::router::http {

// Reads tools and tool_choice, after the conversation: of the tools with defer_loading, only those
// that it has loaded are offered. Errors are in fields.status(). The contents of a tool are checked
// when the request is built.
void ReadAnthropicTools(JsonFields& fields, const DeferredTools& deferred, ApiRequest& request);

}  // namespace stagecoach::router::http
