// Reads the input of OpenAI's /v1/responses.
#pragma once

#include "router/frontend/http/json_fields.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Adds the messages of `input`, a text or items, to `chat`, those that a chat completion with the
// same conversation has: reasoning, text and function calls that follow each other are one message
// of the assistant. Errors are in fields.status().
void ReadInput(JsonFields& fields, v1::ChatRequest& chat);

}  // namespace stagecoach::router::http
