// A conversation and the tools of it, as /v1/chat/completions has them.
#pragma once

#include "router/frontend/http/json_fields.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Each fills in its fields of `chat`; problems are in fields.status().
void ReadMessages(JsonFields& fields, v1::ChatRequest& chat);
// tools, tool_choice, parallel_tool_calls. What a tool is made of is checked with the request.
void ReadTools(JsonFields& fields, v1::ChatRequest& chat);

}  // namespace stagecoach::router::http
