// What a chat request wants of its answers, beside their text.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/text/chat.h"
#include "router/text/output_channels.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// What a request's tools say of the text's grammar.
struct ToolUse {
  std::vector<ToolSpec> tools;  // that may be called; `strict` as is kept to
  std::string calls;            // Lark; empty: no grammar speaks of calls
  bool calls_alone = false;     // tool_choice demands them: they come before any other form
};

// INVALID_ARGUMENT names the field.
absl::StatusOr<ToolUse> ReadToolUse(const ServedModel& model, const v1::ChatRequest& request,
                                    const ChatPrompt& prompt);
// An error about a grammar of calls in terms of the tools: "tools[1].function.parameters: at
// #/properties/a: ...". Takes as long as compiling them.
absl::Status InTermsOfTools(const ServedModel& model, const ToolUse& use,
                            const absl::Status& status);

absl::StatusOr<OutputFormat> ChatOutput(const ServedModel& model, const v1::ChatRequest& request,
                                        const ChatPrompt& prompt);
// Of a request without a conversation.
absl::StatusOr<OutputFormat> PlainOutput(const v1::GenerateRequest& request);

}  // namespace stagecoach::router
