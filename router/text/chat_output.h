// The output settings of a chat request: tool calls, reasoning and JSON events.
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

// The effect of a request's tools on the grammar.
struct ToolUse {
  // Tools that may be called; `strict` is set if a grammar covers calls.
  std::vector<ToolSpec> tools;
  std::string calls;         // Lark; empty: no grammar covers calls
  bool calls_alone = false;  // tool_choice requires calls, which replaces any other grammar
};

// INVALID_ARGUMENT names the field.
absl::StatusOr<ToolUse> ReadToolUse(const ServedModel& model, const v1::ChatRequest& request,
                                    const ChatPrompt& prompt);
// Translates an error about a tool call grammar to the tools: "tools[1].function.parameters: at
// #/properties/a: ...". Takes as long as compiling the tools' grammars.
absl::Status InTermsOfTools(const ServedModel& model, const ToolUse& use,
                            const absl::Status& status);

absl::StatusOr<OutputFormat> ChatOutput(const ServedModel& model, const v1::ChatRequest& request,
                                        const ChatPrompt& prompt);
// For a request without a conversation.
absl::StatusOr<OutputFormat> PlainOutput(const v1::GenerateRequest& request);

}  // namespace stagecoach::router
