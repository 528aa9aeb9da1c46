// A conversation's messages as a chat template takes them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "router/text/tool_family.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// A JSON array as in OpenAI's API, but with the arguments of calls as objects and with ids that the
// family's templates accept. INVALID_ARGUMENT names the field, as in
// "messages[2].tool_calls[0].arguments: ...".
absl::StatusOr<std::string> MessagesJson(const v1::ChatRequest& request, ToolFamily family);

}  // namespace stagecoach::router
