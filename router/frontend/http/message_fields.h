// Reads the messages and tools of /v1/chat/completions.
#pragma once

#include "router/frontend/http/json_fields.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Both fill in their fields of `chat`; errors are in fields.status().
void ReadMessages(JsonFields& fields, v1::ChatRequest& chat);
// Reads tools, tool_choice and parallel_tool_calls. The contents of a tool are checked when the
// request is built.
void ReadTools(JsonFields& fields, v1::ChatRequest& chat);

}  // namespace stagecoach::router::http
