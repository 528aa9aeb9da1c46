// A conversation as prompt tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

struct ChatPrompt {
  std::string text;  // as rendered
  std::vector<int32_t> ids;
};

// INVALID_ARGUMENT names the field, or carries the words of a template that refuses the messages.
absl::StatusOr<ChatPrompt> RenderChat(const ServedModel& model, const v1::ChatRequest& request);

}  // namespace stagecoach::router
