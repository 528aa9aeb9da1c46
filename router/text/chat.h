// Renders a conversation into prompt tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/text/served_model.h"
#include "router/text/tool_family.h"
#include "router/text/tool_spec.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

struct ChatPrompt {
  std::string text;  // the rendered text
  std::vector<int32_t> ids;
  ToolFamily family = ToolFamily::kJson;
  std::vector<ToolSpec> tools;  // tools that the template received
};

// `unix_s`: the time for templates that ask for it; absent: now. INVALID_ARGUMENT names the field,
// or has the message of a template that rejects the messages.
absl::StatusOr<ChatPrompt> RenderChat(const ServedModel& model, const v1::ChatRequest& request,
                                      std::optional<int64_t> unix_s = std::nullopt);

}  // namespace stagecoach::router
