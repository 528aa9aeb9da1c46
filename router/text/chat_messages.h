// A conversation's messages as a chat template takes them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "router/text/tool_family.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// How a template gets arguments of a call that are no JSON object, as when max_tokens cut them off.
enum class OddArguments : uint8_t {
  kText,    // as the string that they are
  kMember,  // as {"arguments": "..."}, for templates that can only read objects
};

struct MessagesForTemplate {
  // A JSON array as in OpenAI's API, but with the arguments of calls as objects where they are
  // such, and with ids that the family's templates accept.
  std::string json;
  bool has_odd_arguments = false;
};

// INVALID_ARGUMENT names the field, as in "messages[2].tool_calls[0].name: ...".
absl::StatusOr<MessagesForTemplate> MessagesJson(const v1::ChatRequest& request, ToolFamily family,
                                                 OddArguments odd = OddArguments::kText);

}  // namespace stagecoach::router
