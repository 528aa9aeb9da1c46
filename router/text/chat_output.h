// What a chat request wants of its answers, beside their text.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/text/chat.h"
#include "router/text/output_channels.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// Where tool_choice leaves the model no choice, adds the grammar of its calls to `sampling`.
// INVALID_ARGUMENT names the field.
absl::Status ApplyToolChoice(const ServedModel& model, const v1::ChatRequest& request,
                             const ChatPrompt& prompt, v1::SamplingParams& sampling);
// An error about that grammar in terms of the request.
absl::Status InTermsOfTools(const absl::Status& status);

absl::StatusOr<OutputFormat> ChatOutput(const ServedModel& model, const v1::ChatRequest& request,
                                        const ChatPrompt& prompt);
// Of a request without a conversation.
absl::StatusOr<OutputFormat> PlainOutput(const v1::GenerateRequest& request);

}  // namespace stagecoach::router
