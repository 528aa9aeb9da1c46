// Converts a conversation's messages to the form that chat templates expect.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "router/text/tool_family.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// How to pass what some templates cannot read.
enum class OddValues : uint8_t {
  kAsSent,
  // Tool call arguments that are not a JSON object, for example because max_tokens cut them off,
  // are {"arguments": "..."}. A null content beside calls is "".
  kReplaced,
};

// What a template expects of messages.
struct MessageForm {
  ToolFamily family = ToolFamily::kJson;
  bool reasoning_is_part = false;  // it is in front of an answer's text: {"type": "thinking", ...}
};

struct MessagesForTemplate {
  // A JSON array as in OpenAI's API, except that tool call arguments are objects where possible,
  // and ids have a form that the family's templates accept.
  std::string json;
  bool has_odd_values = false;  // OddValues makes a difference
};

// INVALID_ARGUMENT names the field, as in "messages[2].tool_calls[0].name: ...".
absl::StatusOr<MessagesForTemplate> MessagesJson(const v1::ChatRequest& request,
                                                 const MessageForm& form,
                                                 OddValues odd = OddValues::kAsSent);

}  // namespace stagecoach::router
