// Parses the bodies of OpenAI's /v1/responses.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "router/frontend/http/api_request.h"

namespace stagecoach::router::http {

// The same request as a chat completion would be; the messages of a previous response are still
// missing. INVALID_ARGUMENT names the field. Tools that only OpenAI's servers run, and hints, are
// left out and noted in the log.
absl::StatusOr<ApiRequest> ParseResponsesRequest(std::string_view body);

}  // namespace stagecoach::router::http
