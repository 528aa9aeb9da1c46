// Answers Anthropic's /v1/messages/count_tokens.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// Turns a request of /v1/messages into {"input_tokens"}, the length of its prompt. Its time grows
// with the length of the text. INVALID_ARGUMENT names the field.
absl::StatusOr<std::string> AnswerCountTokens(const Frontend& frontend, std::string_view body);

}  // namespace stagecoach::router::http
