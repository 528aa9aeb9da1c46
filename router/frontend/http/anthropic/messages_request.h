// Parses the bodies of Anthropic's /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "router/frontend/http/api_request.h"

namespace stagecoach::router::http {

// The same request as a chat completion would be. INVALID_ARGUMENT names the field. Unlike there,
// fields that the server does not know are left out: hints of agents, and tools that only
// Anthropic's servers run, are noted in the log.
absl::StatusOr<ApiRequest> ParseMessagesRequest(std::string_view body);

}  // namespace stagecoach::router::http
