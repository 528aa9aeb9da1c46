// Reads the conversation of Anthropic's /v1/messages.
#pragma once

#include "router/frontend/http/anthropic/deferred_tools.h"
#include "router/frontend/http/json_fields.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Turns `system` and `messages` into the messages of `chat`, those that a chat completion with the
// same conversation has. A tool result becomes a message of its own. If the last message is an
// assistant's text, the model continues it. Tool results load tools of `deferred`. Errors are in
// fields.status().
//
// The text of `system` loses its first lines if they are accounts of a client's version and costs
// ("x-anthropic-billing-header: ..."): they change from call to call, and with them in front, no
// prefix of the conversation would ever be found in the prefix cache.
void ReadConversation(JsonFields& fields, DeferredTools& deferred, v1::ChatRequest& chat);

}  // namespace stagecoach::router::http
